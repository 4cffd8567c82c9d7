"""What a shard learns: one input per fact, in the past tense.

An input exists only if its bytes were well formed and every signature on them was good; whatever
else came out of the log never gets this far (see `admit`).
"""

from __future__ import annotations

import msgspec

from schemas.envelope import Envelope


class Arrived(msgspec.Struct, frozen=True, kw_only=True):
    """A sealed message for `mailbox` reached the log."""

    mailbox: bytes
    envelope: Envelope
    envelope_hash: bytes
    raw: bytes  # the envelope as it came, for the inbox


class Acked(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of `mailbox` says it retrieved or read some messages of one sender."""

    mailbox: bytes
    sender: bytes
    message_ids: tuple[bytes, ...]
    read: bool
    said_at_ms: int
    proof: bytes


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of `mailbox` has the message and does not want its sender to know."""

    mailbox: bytes
    sender: bytes
    message_id: bytes
    short_hash: bytes
    said_at_ms: int
    proof: bytes


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """A sender takes back a message that was not yet delivered."""

    mailbox: bytes
    sender: bytes
    message_id: bytes
    short_hash: bytes
    said_at_ms: int
    proof: bytes


class CounterPassed(msgspec.Struct, frozen=True, kw_only=True):
    """A sender says that a counter of its lane will not come here: void, or sent elsewhere."""

    mailbox: bytes
    sender: bytes
    session_id: bytes
    priority: int
    counter: int
    elsewhere: bool  # it went another way, so it may still come here once
    said_at_ms: int
    proof: bytes


class Noted(msgspec.Struct, frozen=True, kw_only=True):
    """A recipient's word about a message that history keeps and nothing acts on yet."""

    mailbox: bytes
    sender: bytes
    message_id: bytes
    kind: str  # nak, term, undecryptable
    argument: int
    said_at_ms: int
    proof: bytes


class Ticked(msgspec.Struct, frozen=True):
    """Time passed: the answer to a wake."""


class SnapshotAsked(msgspec.Struct, frozen=True, kw_only=True):
    """The driver wants this shard's state as a row."""

    round: int


class PolicyChanged(msgspec.Struct, frozen=True, kw_only=True):
    """From here on the shard follows this policy."""

    number: int
    body: bytes


MailboxInput = Arrived | Acked | Taken | Cancelled | CounterPassed | Noted
Input = MailboxInput | Ticked | SnapshotAsked | PolicyChanged
