import re
import tomllib
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import BadSettings
from schemas.limits import RANGES
from schemas.policy import Policy
from schemas.settings import Settings, describe

DEFAULT_TOML = Path(__file__).parents[3] / "conf" / "default.toml"
BY_KEY = {setting.key: setting for setting in describe()}


def toml(key, value):
    section, _, name = key.rpartition(".")
    return f"[{section}]\n{name} = {value}" if section else f"{name} = {value}"


def parse(text="", **environ):
    return Settings.parse(text, environ)


def value_of(settings, key):
    for part in key.split("."):
        settings = getattr(settings, part)
    return settings


def test_nothing_given_means_the_defaults():
    assert parse() == Settings()


def test_the_default_file_says_exactly_the_defaults():
    tables = tomllib.loads(DEFAULT_TOML.read_text())
    in_file = {}
    for name, value in tables.items():
        inner = value if isinstance(value, dict) else {"": value}
        in_file |= {f"{name}.{key}".rstrip("."): item for key, item in inner.items()}
    assert in_file == {setting.key: setting.default for setting in describe()}
    assert list(in_file) == [setting.key for setting in describe()]
    assert parse(DEFAULT_TOML.read_text()) == Settings()


def test_the_default_file_explains_every_setting_and_its_range():
    lines = DEFAULT_TOML.read_text().splitlines()
    section = ""
    for above, line in pairwise(lines):
        if line.startswith("["):
            section = line.strip("[]") + "."
        elif " = " in line and not line.startswith("#"):
            key = section + line.split(" = ")[0]
            assert above.startswith("# "), key
            if key in RANGES:
                assert "Range {:_} to {:_}.".format(*RANGES[key]) in above, key


def test_every_range_belongs_to_a_setting_and_every_number_has_a_range():
    numbers = {s.key for s in describe() if type(s.default) is int}
    assert numbers == set(RANGES)


@pytest.mark.parametrize("key", RANGES)
def test_defaults_are_within_their_range(key):
    least, most = RANGES[key]
    assert least <= BY_KEY[key].default <= most


# The rules between settings want some company for an extreme value.
COMPANY = {
    "log.shards": {"FARPOST_LOG_PARTITIONS": "1"},
    "log.partitions": {"FARPOST_LOG_SHARDS": "4096"},
    "stack.restart_backoff_ms": {"FARPOST_STACK_RESTART_BACKOFF_MAX_MS": "3600000"},
    "stack.restart_backoff_max_ms": {"FARPOST_STACK_RESTART_BACKOFF_MS": "100"},
}


@pytest.mark.parametrize("key", RANGES)
def test_both_ends_of_a_range_are_allowed_and_nothing_beyond(key):
    least, most = RANGES[key]
    company = COMPANY.get(key, {})
    variable = BY_KEY[key].variable
    for value in (least, most):
        assert value_of(Settings.parse(toml(key, value), company), key) == value
        assert value_of(Settings.parse("", {**company, variable: str(value)}), key) == value
    for value in (least - 1, most + 1):
        text = re.escape(f"must be a whole number from {least} to {most}")
        with pytest.raises(BadSettings, match=f"{key} = {value}: {text}"):
            Settings.parse(toml(key, value), company)
        with pytest.raises(BadSettings, match=rf"{key} = {value} \(from {variable}\): {text}"):
            Settings.parse("", {**company, variable: str(value)})


@pytest.mark.parametrize("key", BY_KEY)
def test_a_value_of_the_wrong_type_is_refused_by_name(key):
    for wrong in ("[1]", "1.5", "{}", "1979-05-27"):
        with pytest.raises(BadSettings, match=rf"{re.escape(key)} = .*: must be "):
            parse(toml(key, wrong))


def test_a_truth_is_not_a_number_and_a_number_is_not_a_truth():
    with pytest.raises(BadSettings, match=r"log\.shards = True: must be a whole number"):
        parse("[log]\nshards = true")
    with pytest.raises(BadSettings, match=r"kafka\.create_topics = 1: must be true or false"):
        parse("[kafka]\ncreate_topics = 1")


def test_the_environment_wins_over_the_file():
    settings = parse("[log]\nshards = 8\nkeep_ms = 5", FARPOST_LOG_SHARDS="128")
    assert (settings.log.shards, settings.log.keep_ms) == (128, 5)


def test_the_data_directory_has_a_short_variable():
    assert parse(FARPOST_DATA="/somewhere").data == "/somewhere"
    assert BY_KEY["data"].variable == "FARPOST_DATA"


def test_a_variable_is_named_after_its_section_and_key():
    assert BY_KEY["policy.gap_timeout_ms"].variable == "FARPOST_POLICY_GAP_TIMEOUT_MS"
    assert len({setting.variable for setting in describe()}) == len(describe())


@pytest.mark.parametrize(
    ("word", "meant"),
    [("true", True), ("1", True), ("False", False), ("FALSE", False), ("0", False)],
)
def test_words_for_true_and_false(word, meant):
    assert parse(FARPOST_KAFKA_CREATE_TOPICS=word).kafka.create_topics is meant


def test_numbers_in_the_environment_may_have_underscores():
    assert parse(FARPOST_POLICY_GAP_TIMEOUT_MS="60_000").policy.gap_timeout_ms == 60_000


@pytest.mark.parametrize(
    ("variable", "word"),
    [
        ("FARPOST_KAFKA_CREATE_TOPICS", "yes"),
        ("FARPOST_LOG_SHARDS", ""),
        ("FARPOST_LOG_SHARDS", "many"),
        ("FARPOST_LOG_SHARDS", "6.4"),
        ("FARPOST_LOG_SHARDS", "0x40"),
        ("FARPOST_LOG_SHARDS", "9" * 5_000),
        ("FARPOST_JOB_SINK", "file"),
        ("FARPOST_DATA", ""),
        ("FARPOST_KAFKA_BOOTSTRAP", "localhost"),
        ("FARPOST_KAFKA_BOOTSTRAP", "a:1, b:2"),
        ("FARPOST_KAFKA_TOPIC_PREFIX", "a/b"),
        ("FARPOST_JOB_MASTER", ""),
    ],
)
def test_a_wrong_word_in_the_environment_is_refused_with_the_variable(variable, word):
    with pytest.raises(BadSettings, match=rf" \(from {variable}\): must be "):
        Settings.parse("", {variable: word})


@pytest.mark.parametrize("word", ["", "localhost:9092", "a.example:1,10.0.0.1:65535"])
def test_brokers_are_hosts_with_ports(word):
    assert parse(FARPOST_KAFKA_BOOTSTRAP=word).kafka.bootstrap == word


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[log]\nshard = 1", r"log\.shard: there is no such setting; did you mean log\.shards\?"),
        ("[logs]\nshards = 1", "logs: there is no such setting"),
        ("zzz = 1", "zzz: there is no such setting$"),
        ("log = 1", r"log = 1: must be a section, \[log\]"),
        ("[log.inner]\nx = 1", r"log\.inner: there is no such setting"),
        ("[policy]\nretries = 1", r"policy\.retries: there is no such setting"),
    ],
)
def test_an_unknown_key_is_refused_by_name(text, message):
    with pytest.raises(BadSettings, match=message):
        parse(text)


def test_a_misspelt_variable_is_refused_with_the_nearest_one():
    message = "FARPOST_LOG_SHARD: there is no such setting; did you mean FARPOST_LOG_SHARDS?"
    with pytest.raises(BadSettings, match=re.escape(message)):
        parse(FARPOST_LOG_SHARD="1")


def test_variables_of_others_are_ignored():
    assert parse(PATH="/bin", FARPOST="x", FARPOST_JARS="/x", log_shards="7") == Settings()


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[log]\nshards = ", "line 2"),
        ("[log]\nshards = 1\nshards = 2", "line 3"),
        ("[log\n", "line 1"),
        ("\x00", "line 1"),
    ],
)
def test_broken_toml_is_refused_with_the_line(text, where):
    with pytest.raises(BadSettings, match=f"not valid TOML: .*{where}"):
        parse(text)


def test_endless_nesting_is_refused():
    with pytest.raises(BadSettings):
        parse("a = " + "[" * 20_000)


@given(st.text(max_size=60))
def test_hostile_text_only_ever_raises_bad_settings(text):
    with suppress(BadSettings):
        parse(text)
    with suppress(BadSettings):
        parse(FARPOST_JOB_SINK=text, FARPOST_DATA=text)


def test_partitions_must_divide_shards():
    message = r"log\.partitions = 3: must be a divisor of log\.shards = 32"
    with pytest.raises(BadSettings, match=message):
        parse("[log]\npartitions = 3")


def test_a_restart_does_not_wait_longer_than_the_longest_wait():
    with pytest.raises(BadSettings, match=r"at most stack\.restart_backoff_max_ms = 1000"):
        parse("[stack]\nrestart_backoff_ms = 2000\nrestart_backoff_max_ms = 1000")


@pytest.mark.parametrize(
    ("protocol", "mechanism", "fits"),
    [
        ("PLAINTEXT", "", True),
        ("SSL", "", True),
        ("SASL_SSL", "PLAIN", True),
        ("SASL_PLAINTEXT", "SCRAM-SHA-512", True),
        ("SASL_SSL", "", False),
        ("SSL", "PLAIN", False),
    ],
)
def test_a_sasl_protocol_and_a_mechanism_go_together(protocol, mechanism, fits):
    text = f'[kafka]\nsecurity_protocol = "{protocol}"\nsasl_mechanism = "{mechanism}"'
    if fits:
        assert parse(text).kafka.sasl_mechanism == mechanism
    else:
        with pytest.raises(BadSettings, match=rf"kafka\.sasl_mechanism = '{mechanism}': must be"):
            parse(text)


def test_a_password_is_never_shown():
    settings = parse(FARPOST_KAFKA_SASL_PASSWORD="hunter2")
    assert settings.kafka.sasl_password == "hunter2"
    assert "hunter2" not in repr(settings)
    for wrong in ({"text": "[kafka]\nsasl_password = 424242"}, {}):
        with pytest.raises(BadSettings) as caught:
            parse(**wrong or {"FARPOST_KAFKA_SASL_PASSWORD": "424242" * 1_000})
        assert "424242" not in str(caught.value)
        assert "kafka.sasl_password = '(hidden)'" in str(caught.value)


def test_settings_cannot_be_changed():
    with pytest.raises(AttributeError):
        Settings().log.shards = 5


def test_policy_is_a_section():
    assert parse("[policy]\ngap_max = 7").policy == Policy(gap_max=7)


@pytest.mark.parametrize(
    ("memory_mb", "given", "offsets"), [(2_048, 0, 1_096), (512, 0, 72), (2_048, 7, 7)]
)
def test_a_batch_of_maximal_envelopes_fits_the_heap_four_times(memory_mb, given, offsets):
    job = msgspec.structs.replace(
        Settings().job, driver_memory_mb=memory_mb, max_offsets_per_trigger=given
    )
    assert job.offsets_per_trigger == offsets


def test_every_setting_says_what_is_allowed():
    assert BY_KEY["log.shards"].allowed == "a whole number from 1 to 4096"
    assert BY_KEY["job.sink"].allowed == "one of 'driver', 'spark'"
    assert BY_KEY["kafka.create_topics"].allowed == "true or false"
    assert all(setting.allowed for setting in describe())
