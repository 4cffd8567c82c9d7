import hashlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.effects import Bury, Quarantine, Record, Release, Snapshot, Store
from pipelines.rows import expires_on, row_of
from schemas.tables import TABLES, TABLES_BY_CODE

PLACE = {
    "partition": 1,
    "offset": 20,
    "index": 3,
    "shard": 5,
    "core_version": 9,
    "policy_number": 7,
}
NOW = int(datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()) * 1000
DAY = 86_400_000
RECIPIENT, SENDER, ID, SESSION = b"r" * 32, b"s" * 32, b"i" * 16, b"e" * 32

STORE = Store(
    recipient=RECIPIENT,
    sender=SENDER,
    message_id=ID,
    kind="stored",
    position=4,
    priority=2,
    message_class=3,
    session_id=SESSION,
    counter=8,
    at_ms=NOW,
    expires_at_ms=NOW + DAY,
    not_before_ms=None,
    gap_before=True,
    envelope=b"bytes",
    envelope_hash=b"h" * 32,
)
RELEASE = Release(
    recipient=RECIPIENT,
    sender=SENDER,
    message_id=ID,
    position=4,
    priority=2,
    session_id=SESSION,
    counter=8,
    at_ms=NOW,
    expires_at_ms=None,
    gap_before=False,
)
RECORD = Record(
    kind="delivered",
    sender=SENDER,
    recipient=RECIPIENT,
    at_ms=NOW,
    message_id=ID,
    known=True,
    said_at_ms=NOW - 1,
    proof=b"proof",
)
BURY = Bury(
    recipient=RECIPIENT,
    sender=SENDER,
    message_id=ID,
    reason="cancelled",
    category="cancelled",
    at_ms=NOW,
    expires_at_ms=NOW + DAY,
)
QUARANTINE = Quarantine(
    code="bad_record", reason="too short", record_kind=None, at_ms=NOW, value=b"xy"
)
SNAPSHOT = Snapshot(round=2, at_ms=NOW, blob=b"state")
ALL = [
    (STORE, "inbox"),
    (RELEASE, "inbox"),
    (RECORD, "history"),
    (BURY, "dead_letters"),
    (QUARANTINE, "quarantine"),
    (SNAPSHOT, "snapshots"),
]


def named(effect):
    code, row = row_of(effect, **PLACE)
    names = [column.name for column in TABLES_BY_CODE[code].packed]
    return dict(zip(names, row, strict=True))


@pytest.mark.parametrize(("effect", "table"), ALL)
def test_every_effect_has_its_table_and_every_column_its_type(effect, table):
    code, row = row_of(effect, **PLACE)
    assert code == TABLES[table].code
    assert row[:3] == [1, 20, 3]
    types = {"string": str, "int": int, "long": int, "boolean": bool, "binary": bytes}
    for column, value in zip(TABLES[table].packed, row, strict=True):
        assert value is None or type(value) is types[column.type], column.name


def test_a_stored_row_has_the_envelope_and_hex_names():
    row = named(STORE)
    assert (row["recipient"], row["sender"]) == (RECIPIENT.hex(), SENDER.hex())
    assert (row["message_id"], row["session_id"]) == (ID.hex(), SESSION.hex())
    assert (row["kind"], row["position"], row["gap_before"]) == ("stored", 4, True)
    assert (row["priority"], row["message_class"], row["counter"]) == (2, 3, 8)
    assert (row["envelope"], row["envelope_hash"]) == (b"bytes", (b"h" * 32).hex())
    assert (row["received_at_ms"], row["expires_at_ms"]) == (NOW, NOW + DAY)
    assert (row["not_before_ms"], row["expires_on"]) == (None, "2026-11-17")


def test_a_released_row_is_small():
    row = named(RELEASE)
    assert (row["kind"], row["position"], row["expires_on"]) == ("released", 4, "never")
    assert row["envelope"] is row["envelope_hash"] is row["message_class"] is None
    assert (row["gap_before"], row["not_before_ms"]) == (False, None)


def test_a_history_row_has_what_was_said_and_nulls_elsewhere():
    row = named(RECORD)
    assert (row["kind"], row["known"], row["proof"]) == ("delivered", True, b"proof")
    assert (row["said_at_ms"], row["at_ms"], row["security"]) == (NOW - 1, NOW, False)
    for name in ("reason", "attempt", "session_id", "priority", "counter", "counter_to"):
        assert row[name] is None


def test_a_row_about_a_lane_has_no_message():
    lane = Record(
        kind="gap",
        sender=SENDER,
        recipient=RECIPIENT,
        at_ms=NOW,
        session_id=SESSION,
        priority=0,
        counter=3,
        counter_to=5,
    )
    row = named(lane)
    assert (row["message_id"], row["session_id"]) == (None, SESSION.hex())
    assert (row["priority"], row["counter"], row["counter_to"]) == (0, 3, 5)


def test_a_dead_letter_says_why_and_when():
    row = named(BURY)
    assert (row["reason"], row["category"], row["attempts"]) == ("cancelled", "cancelled", 0)
    assert (row["moved_at_ms"], row["expires_at_ms"]) == (NOW, NOW + DAY)


def test_a_quarantined_row_has_size_and_hash_of_the_record():
    row = named(QUARANTINE)
    assert (row["value"], row["value_size"]) == (b"xy", 2)
    assert row["value_hash"] == hashlib.sha256(b"xy").hexdigest()
    assert (row["code"], row["reason"], row["kind"]) == ("bad_record", "too short", None)


def test_a_snapshot_row_says_what_it_includes():
    row = named(SNAPSHOT)
    assert (row["shard"], row["round"], row["core_version"]) == (5, 2, 9)
    assert (row["policy_number"], row["last_offset"], row["blob"]) == (7, 20, b"state")


@pytest.mark.parametrize(
    ("away_ms", "name"),
    [
        (1, "2026-11-16"),
        (DAY, "2026-11-17"),
        (DAY + 1, "2026-W47"),
        (7 * DAY, "2026-W48"),
        (7 * DAY + 1, "2026-11"),
        (30 * DAY, "2026-12"),
    ],
)
def test_the_table_partition_is_the_day_the_week_or_the_month_of_the_expiry(away_ms, name):
    assert expires_on(NOW + away_ms, NOW) == name


def test_a_message_that_never_expires_has_a_table_partition_of_its_own():
    assert expires_on(None, NOW) == "never"


def test_a_week_is_the_week_of_its_own_year():
    new_year = int(datetime(2027, 1, 1, 12, tzinfo=UTC).timestamp()) * 1000
    assert expires_on(new_year, new_year - 3 * DAY) == "2026-W53"


@given(st.integers(1, 90 * DAY))
def test_a_table_partition_ends_no_earlier_than_the_expiry(away_ms):
    name = expires_on(NOW + away_ms, NOW)
    expiry = datetime.fromtimestamp((NOW + away_ms) / 1000, UTC)
    assert name in (
        expiry.strftime("%Y-%m-%d"),
        "{}-W{:02}".format(*expiry.isocalendar()[:2]),
        expiry.strftime("%Y-%m"),
    )
