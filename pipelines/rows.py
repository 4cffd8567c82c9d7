"""Effects as rows: the one place that knows the columns' order."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

from pipelines.effects import Bury, Effect, Quarantine, Record, Release, Snapshot, Store
from pipelines.packs import Row
from schemas.tables import TABLES

DAY_MS = 86_400_000
_INBOX, _HISTORY, _DEAD, _QUARANTINE, _SNAPSHOTS = (
    TABLES[name].code for name in ("inbox", "history", "dead_letters", "quarantine", "snapshots")
)


def row_of(
    effect: Effect,
    *,
    partition: int,
    offset: int,
    index: int,
    shard: int,
    core_version: int,
    policy_number: int,
) -> tuple[int, Row]:
    """The table's code and the row that carries this effect out; the place makes it unique."""
    place: Row = [partition, offset, index]
    if isinstance(effect, Store):
        return _INBOX, place + _stored(effect)
    if isinstance(effect, Release):
        return _INBOX, place + _released(effect)
    if isinstance(effect, Record):
        return _HISTORY, place + _recorded(effect)
    if isinstance(effect, Bury):
        return _DEAD, place + _buried(effect)
    if isinstance(effect, Quarantine):
        return _QUARANTINE, place + _quarantined(effect)
    assert isinstance(effect, Snapshot)
    return _SNAPSHOTS, [
        *place,
        shard,
        effect.round,
        effect.at_ms,
        core_version,
        policy_number,
        offset,
        effect.blob,
    ]


def _stored(effect: Store) -> Row:
    return [
        effect.recipient.hex(),
        effect.sender.hex(),
        effect.message_id.hex(),
        effect.kind,
        effect.position,
        effect.priority,
        effect.message_class,
        effect.session_id.hex(),
        effect.counter,
        effect.at_ms,
        effect.expires_at_ms,
        effect.not_before_ms,
        effect.gap_before,
        effect.envelope,
        effect.envelope_hash.hex(),
        expires_on(effect.expires_at_ms, effect.at_ms),
    ]


def _released(effect: Release) -> Row:
    return [
        effect.recipient.hex(),
        effect.sender.hex(),
        effect.message_id.hex(),
        "released",
        effect.position,
        effect.priority,
        None,
        effect.session_id.hex(),
        effect.counter,
        effect.at_ms,
        effect.expires_at_ms,
        None,
        effect.gap_before,
        None,
        None,
        expires_on(effect.expires_at_ms, effect.at_ms),
    ]


def _recorded(effect: Record) -> Row:
    return [
        effect.message_id.hex() or None,
        effect.sender.hex(),
        effect.recipient.hex(),
        effect.kind,
        effect.reason,
        effect.at_ms,
        None,  # attempt
        None if effect.session_id is None else effect.session_id.hex(),
        effect.priority,
        effect.counter,
        effect.counter_to,
        effect.position,
        effect.known,
        effect.security,
        effect.said_at_ms,
        effect.expires_at_ms,
        effect.proof,
    ]


def _buried(effect: Bury) -> Row:
    return [
        effect.message_id.hex(),
        effect.sender.hex(),
        effect.recipient.hex(),
        effect.reason,
        effect.category,
        0,  # attempts: none is made by the hub yet
        None,
        None,
        effect.at_ms,
        effect.expires_at_ms,
    ]


def _quarantined(effect: Quarantine) -> Row:
    return [
        effect.at_ms,
        effect.code,
        effect.reason,
        effect.record_kind,
        effect.value,
        len(effect.value),
        hashlib.sha256(effect.value).hexdigest(),
    ]


def expires_on(expires_at_ms: int | None, now_ms: int) -> str:
    """The table partition: the day, week or month in which the last of its messages expires."""
    if expires_at_ms is None:
        return "never"
    day = datetime.fromtimestamp(expires_at_ms / 1000, UTC)
    away_ms = expires_at_ms - now_ms
    if away_ms <= DAY_MS:
        return day.strftime("%Y-%m-%d")
    if away_ms <= 7 * DAY_MS:
        return day.strftime("%G-W%V")
    return day.strftime("%Y-%m")
