"""What a shard decides: effects as data, in the imperative. Sinks and clock carry them out."""

from __future__ import annotations

import msgspec


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """Keep an accepted envelope; `position` is None while it may not be fetched yet."""

    recipient: bytes
    sender: bytes
    message_id: bytes
    kind: str  # stored, held, scheduled
    position: int | None
    priority: int
    message_class: int
    session_id: bytes
    counter: int
    at_ms: int
    expires_at_ms: int | None
    not_before_ms: int | None
    gap_before: bool
    envelope: bytes
    envelope_hash: bytes


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """Let a message that was held or scheduled be fetched, at this position."""

    recipient: bytes
    sender: bytes
    message_id: bytes
    position: int
    priority: int
    session_id: bytes
    counter: int
    at_ms: int
    expires_at_ms: int | None
    gap_before: bool


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Write one row of history: a change of a message, or of its lane if it has no message_id."""

    kind: str
    sender: bytes
    recipient: bytes
    at_ms: int
    message_id: bytes = b""
    reason: str | None = None
    session_id: bytes | None = None
    priority: int | None = None
    counter: int | None = None
    counter_to: int | None = None
    position: int | None = None
    known: bool | None = None
    security: bool = False
    said_at_ms: int | None = None
    expires_at_ms: int | None = None
    proof: bytes | None = None


class Bury(msgspec.Struct, frozen=True, kw_only=True):
    """Move a message to the dead letters."""

    recipient: bytes
    sender: bytes
    message_id: bytes
    reason: str
    category: str
    at_ms: int
    expires_at_ms: int | None


class Quarantine(msgspec.Struct, frozen=True, kw_only=True):
    """Set a record aside that cannot be applied, with what is wrong and what to do next."""

    code: str
    reason: str
    record_kind: int | None
    at_ms: int
    value: bytes


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Write the shard's own state as a row, so that it can be rebuilt from there."""

    round: int
    at_ms: int
    blob: bytes


class Dispatch(msgspec.Struct, frozen=True, kw_only=True):
    """Send an order to whoever is connected; `order` is its JSON without the place it came from."""

    order: dict[str, str | int]


Effect = Store | Release | Record | Bury | Quarantine | Snapshot | Dispatch
