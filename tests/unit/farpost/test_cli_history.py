"""The commands trace, check and sql as a person or a program calls them."""

import csv
import json

import pytest
from click.testing import CliRunner

from farpost import proof
from farpost.cli.check import check
from farpost.cli.sql import sql
from farpost.cli.trace import trace
from farpost.retained import Retained
from schemas.errors import BrokerUnavailable, NotFound
from tests.factories import address, device, message_id
from tests.unit.farpost.made_up import PARTITIONS, SHARDS, FakeConsumer, Hub

ID = message_id(1).hex()
# kafka-python reads its own files in a way that Python 3.11 calls old.
pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    made = Hub(tmp_path_factory.mktemp("hub"))
    made.be_busy()
    made.commit()
    return made


@pytest.fixture(autouse=True)
def _settings_of_the_made_up_log(monkeypatch):
    monkeypatch.setenv("FARPOST_LOG_SHARDS", str(SHARDS))
    monkeypatch.setenv("FARPOST_LOG_PARTITIONS", str(PARTITIONS))


@pytest.fixture
def broker(hub, monkeypatch):
    """A log that answers, in place of a running broker; returns where it begins and ends."""
    begins = dict.fromkeys(range(PARTITIONS), 0)
    ends = dict(enumerate(hub._next))
    monkeypatch.setattr(proof, "_consumer", lambda *_: FakeConsumer(hub.log))
    monkeypatch.setattr(proof.kafka, "begin_offsets", lambda *_: begins)
    monkeypatch.setattr(proof.kafka, "end_offsets", lambda *_: ends)
    return begins


def run(command, hub, *arguments, code=0):
    done = CliRunner().invoke(command, [*arguments, "--data", str(hub.data)])
    assert done.exit_code == code, done.output
    return done


def test_trace_tells_a_story_in_lines(hub):
    lines = run(trace, hub, ID[:10]).stdout.splitlines()
    assert lines[0] == f"message    {ID}"
    assert lines[1] == f"sender     {address(device(1)).hex()}"
    assert lines[2] == f"recipient  {address(device(2)).hex()}"
    assert lines[4].startswith("2027-01-15 08:00:00 UTC")
    assert "+3 s" in lines[5]
    assert "next:  The sender must use a fresh id" in lines[7]
    assert lines[-1] == "status     delivered: the recipient signed for it"


def test_trace_for_programs(hub):
    told = json.loads(run(trace, hub, ID, "--json").stdout)
    assert told["message_id"] == ID
    assert told["status"] == "delivered"
    assert [step["kind"] for step in told["steps"]] == [
        "stored",
        "duplicate",
        "refused",
        "delivered",
    ]


def test_trace_of_something_else_is_one_clear_error(hub):
    assert run(trace, hub, "nothex", code=1).stderr.startswith("error: the id is 32 hex digits")
    done = CliRunner().invoke(trace, ["ffffffff", "--data", str(hub.data)])
    assert isinstance(done.exception, NotFound)  # the root command makes one line of it


def test_check_is_green_with_the_log(hub, broker):
    done = run(check, hub)
    lines = done.stdout.splitlines()
    assert all(line.startswith("✓") for line in lines[:-1])
    assert lines[-1] == "conserved: 12 envelopes, 0 lost, 0 duplicate positions, 0 inversions"


def test_check_folds_the_log_again(hub, broker):
    assert "rows equal a new fold of the log" in run(check, hub, "--refold").stdout


def test_check_says_if_the_log_cannot_be_folded_again(hub, broker):
    broker[0] = 2
    done = run(check, hub, "--refold", code=3)
    assert "! the log no longer begins at its first record" in done.stdout


def test_check_for_programs(hub, broker):
    figures = json.loads(run(check, hub, "--json").stdout)
    assert figures["conserved"] is True
    assert figures["in_flight"] == 4
    assert figures["notes"] == []


def test_check_without_a_broker_says_what_was_not_checked(hub):
    done = run(check, hub, code=3)
    assert "! the log was not checked: there is no broker in" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("; the log was not checked")


def test_check_goes_on_without_a_broker_that_goes_away(hub, broker, monkeypatch):
    def gone(self, **_):
        raise BrokerUnavailable("it went away")

    monkeypatch.setattr(FakeConsumer, "poll", gone)
    assert "! the log was not checked: it went away" in run(check, hub, code=3).stdout


def test_check_of_damaged_tables_is_red(tmp_path):
    hub = Hub(tmp_path)
    hub.envelope(n=1)
    hub.commit(change=lambda tables: tables["inbox"].clear())
    done = run(check, hub, code=1)
    assert "✗ in flight" in done.stdout
    assert f"message {ID} is in flight, but its envelope is gone" in done.stdout
    assert "NOT conserved: 1 envelopes, 1 lost" in done.stdout


def test_check_sees_a_broken_chain_of_manifests(tmp_path):
    hub = Hub(tmp_path)
    for n in (1, 2, 3):
        hub.envelope(n=n)
        hub.commit()
    assert "✓ offsets" in run(check, hub, code=3).stdout
    (tmp_path / "manifests" / "000000000002.json").write_bytes(b"")
    assert "manifest 2 is missing or cannot be read" in run(check, hub, code=1).stdout


def test_a_proof_reads_the_log_between_its_ends(hub, broker):
    span = proof.retained("inbound", broker, dict(enumerate(hub._next)), hub._next)
    assert span == Retained(starts=[0, 0], ends=hub._next)


def test_sql_as_text(hub):
    done = run(sql, hub, "select kind, count(*) as n from history group by kind order by kind")
    assert done.stdout.splitlines()[:2] == ["kind       n", "cancelled  1"]
    assert done.stderr == "11 rows\n"


def test_sql_for_programs(hub):
    query = "select message_id, known, security, now() as t, [1] as l from history limit 1"
    rows = json.loads(run(sql, hub, query, "--json").stdout)
    assert rows[0]["security"] is False
    assert rows[0]["l"] == [1]


def test_sql_for_spreadsheets(hub):
    text = run(sql, hub, "select 'a,\"b' as x, null as y", "--csv").stdout
    assert list(csv.reader(text.splitlines())) == [["x", "y"], ['a,"b', ""]]


def test_sql_says_if_there_is_more(hub):
    done = run(sql, hub, "select 1 from history", "--limit", "2")
    assert "only the first 2 rows are shown" in done.stderr


def test_sql_that_is_wrong_names_the_tables(hub):
    done = run(sql, hub, "select x from history", code=1)
    assert done.stderr.startswith("error: the query cannot be answered: No field named x")
    assert "dead_letters: partition" in done.stderr


def test_sql_knows_one_form_at_a_time(hub):
    run(sql, hub, "select 1", "--json", "--csv", code=2)
