"""Every setting of the hub: defaults, a TOML text over them, environment variables over both.

The variable of `log.shards` is FARPOST_LOG_SHARDS, that of `data` is FARPOST_DATA. A key that does
not exist, a wrong type or a value out of range raises BadSettings and never becomes a default.
"""

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import msgspec

from schemas.envelope import ENVELOPE_MAX
from schemas.errors import BadSettings
from schemas.limits import RANGES, check_range, wrong
from schemas.policy import Policy

PREFIX: Final = "FARPOST_"
HEAP_BASE_MB: Final = 400
HEAP_PER_BATCH: Final = 6


class Kafka(msgspec.Struct, frozen=True, kw_only=True):
    """Where the log is."""

    bootstrap: str = ""  # empty = the local broker
    topic_prefix: str = ""
    create_topics: bool = True
    replication: int = 1
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = ""
    sasl_username: str = ""
    sasl_password: str = ""
    ssl_cafile: str = ""

    def __repr__(self) -> str:
        """Names no secret, so that a log line or a traceback cannot."""
        return f"Kafka(bootstrap={self.bootstrap!r}, topic_prefix={self.topic_prefix!r}, …)"


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """How the log is cut; shards and partitions are fixed once it exists."""

    shards: int = 32
    partitions: int = 2
    keep_ms: int = 604_800_000


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """How the query runs."""

    trigger_ms: int = 500
    state_partitions: int = 2
    sink: str = "driver"
    master: str = "local[2,4]"
    driver_memory_mb: int = 2_048
    max_offsets_per_trigger: int = 0
    snapshot_interval_ms: int = 3_600_000

    @property
    def offsets_per_trigger(self) -> int:
        """Records a batch may have: if not set, as many as are safe if all have full size.

        Spark alone needs HEAP_BASE_MB, and a batch up to HEAP_PER_BATCH times its size, for its
        results are serialised twice on their way out (measured with one recipient for all).
        """
        room_mb = (self.driver_memory_mb - HEAP_BASE_MB) // HEAP_PER_BATCH
        return self.max_offsets_per_trigger or room_mb * 1024 * 1024 // ENVELOPE_MAX


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """How the local processes are started and stopped."""

    stop_timeout_ms: int = 30_000
    restart_backoff_ms: int = 500
    restart_backoff_max_ms: int = 30_000


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings, checked; made by `parse`."""

    data: str = "./farpost-data"
    kafka: Kafka = Kafka()
    log: Log = Log()
    job: Job = Job()
    stack: Stack = Stack()
    policy: Policy = Policy()

    @classmethod
    def parse(cls, text: str, environ: Mapping[str, str]) -> Self:
        """Defaults, then the TOML text, then the environment; BadSettings says what is wrong."""
        values: dict[str, Any] = {setting.key: setting.default for setting in describe()}
        for key, value in _flatten(_read_toml(text)).items():
            values[key] = _checked(key, value, origin="")
        for variable, word in sorted(environ.items()):
            setting = _setting_of(variable)
            if setting is not None:
                value = _typed(setting, word)
                values[setting.key] = _checked(setting.key, value, origin=variable)
        _check_together(values)
        sections = {name: _section(name, values) for name in _SECTIONS}
        return cls(data=values["data"], **sections)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What there is to know about one setting."""

    key: str
    variable: str
    default: str | int | bool
    allowed: str


def describe() -> tuple[Setting, ...]:
    """Every setting, in the order of the default file."""
    return _SETTINGS


_SECTIONS: Final[dict[str, type[msgspec.Struct]]] = {
    "kafka": Kafka,
    "log": Log,
    "job": Job,
    "stack": Stack,
    "policy": Policy,
}
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "kafka.security_protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "kafka.sasl_mechanism": ("", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    "job.sink": ("driver", "spark"),
}
_PATTERNS: Final[dict[str, tuple[str, str]]] = {
    "data": (r"[^\0]{1,4096}", "the path of a directory"),
    "kafka.bootstrap": (
        r"(?:[^\s,:]+:\d{1,5}(?:,[^\s,:]+:\d{1,5})*)?",
        "empty for the local broker, or host:port[,host:port…]",
    ),
    "kafka.topic_prefix": (r"[A-Za-z0-9._-]{0,100}", "at most 100 letters, digits, . _ or -"),
    "job.master": (r"\S{1,1000}", "a Spark master, such as local[2,4]"),
}
_SECTION_PREFIXES: Final = tuple(f"{PREFIX}{name.upper()}_" for name in _SECTIONS)
_SECRETS: Final = frozenset({"kafka.sasl_password"})
_TEXT_MAX = 4_096


def _allowed(key: str, default: object) -> str:
    if key in RANGES:
        return "a whole number from {} to {}".format(*RANGES[key])
    if isinstance(default, bool):
        return "true or false"
    if key in _CHOICES:
        return "one of " + ", ".join(repr(choice) for choice in _CHOICES[key])
    return _PATTERNS[key][1] if key in _PATTERNS else f"text of at most {_TEXT_MAX} characters"


def _setting(key: str, default: str | int | bool) -> Setting:
    return Setting(
        key=key,
        variable=PREFIX + key.replace(".", "_").upper(),
        default=default,
        allowed=_allowed(key, default),
    )


_SETTINGS: Final = (
    _setting("data", "./farpost-data"),
    *(
        _setting(f"{section}.{field.name}", field.default)
        for section, struct in _SECTIONS.items()
        for field in msgspec.structs.fields(struct)
    ),
)
_BY_KEY: Final = {setting.key: setting for setting in _SETTINGS}
_BY_VARIABLE: Final = {setting.variable: setting for setting in _SETTINGS}


def _read_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text + "\n")  # so that an error in the last line names that line
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadSettings(f"the settings are not valid TOML: {error}") from None


def _flatten(tables: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tables.items():
        if name not in _SECTIONS:
            flat[name] = value
        elif isinstance(value, dict):
            flat.update({f"{name}.{inner}": item for inner, item in value.items()})
        else:
            raise BadSettings(wrong(name, value, f"a section, [{name}]"))
    return flat


def _setting_of(variable: str) -> Setting | None:
    """What a variable sets; None if it is not ours. A misspelt one of a section is refused."""
    setting = _BY_VARIABLE.get(variable)
    if setting is None and any(variable.startswith(prefix) for prefix in _SECTION_PREFIXES):
        raise BadSettings(_unknown(variable, list(_BY_VARIABLE)))
    return setting


def _typed(setting: Setting, word: str) -> str | int | bool:
    """The word as the setting's type; one that does not fit stays text, and will be refused."""
    if isinstance(setting.default, bool):
        return {"true": True, "1": True, "false": False, "0": False}.get(word.lower(), word)
    if isinstance(setting.default, int) and re.fullmatch(r"-?[0-9][0-9_]{0,30}", word):
        return int(word.replace("_", ""))
    return word


def _checked(key: str, value: object, *, origin: str) -> str | int | bool:
    if key not in _BY_KEY:
        raise BadSettings(_unknown(key, list(_BY_KEY)))
    if key in RANGES:
        return check_range(key, value, origin=origin)
    setting = _BY_KEY[key]
    if isinstance(setting.default, bool) and isinstance(value, bool):
        return value
    if isinstance(setting.default, str) and isinstance(value, str) and _fits(key, value):
        return value
    shown = "(hidden)" if key in _SECRETS else value
    raise BadSettings(wrong(key, shown, setting.allowed, origin=origin))


def _fits(key: str, value: str) -> bool:
    if key in _CHOICES:
        return value in _CHOICES[key]
    if key in _PATTERNS:
        return re.fullmatch(_PATTERNS[key][0], value) is not None
    return len(value) <= _TEXT_MAX


def _unknown(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name[:80], names, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"{name[:80]}: there is no such setting{hint}"


def _check_together(values: dict[str, Any]) -> None:
    """The rules between settings."""
    shards, partitions = values["log.shards"], values["log.partitions"]
    if shards % partitions:
        raise BadSettings(
            wrong("log.partitions", partitions, f"a divisor of log.shards = {shards}")
        )
    least, most = values["stack.restart_backoff_ms"], values["stack.restart_backoff_max_ms"]
    if least > most:
        allowed = f"at most stack.restart_backoff_max_ms = {most}"
        raise BadSettings(wrong("stack.restart_backoff_ms", least, allowed))
    protocol, mechanism = values["kafka.security_protocol"], values["kafka.sasl_mechanism"]
    if protocol.startswith("SASL_") != bool(mechanism):
        choices = ", ".join(_CHOICES["kafka.sasl_mechanism"][1:])
        allowed = f"one of {choices} with a SASL_ protocol, else empty (it is {protocol})"
        raise BadSettings(wrong("kafka.sasl_mechanism", mechanism, allowed))


def _section(name: str, values: dict[str, Any]) -> Any:
    struct = _SECTIONS[name]
    return struct(**{field: values[f"{name}.{field}"] for field in struct.__struct_fields__})
