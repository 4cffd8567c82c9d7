"""Records of the log: kind u8, shard u16, body; and the way from a mailbox to its partition."""

import hashlib
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from schemas.acks import SIGNED_ACK_SIZE
from schemas.envelope import ENVELOPE_MAX, ENVELOPE_MIN
from schemas.errors import BadRecord
from schemas.limits import TIME_MS_MAX
from schemas.signals import SIGNAL_SIZE, SignalKind

RECORD_HEAD: Final = 3
VALUE_MAX: Final = RECORD_HEAD + ENVELOPE_MAX

_HEAD: Final = struct.Struct(">BH")
_TICK: Final = struct.Struct(">Q")
_SNAPSHOT: Final = struct.Struct(">I")
_POLICY: Final = struct.Struct(">IH")


class Kind(IntEnum):
    """What a record is; those from ATTEMPT_RESULT on but STORAGE_PROOF come from the hub alone."""

    ENVELOPE = 1
    ACK = 2
    ACK_BATCH = 3
    SIGNAL = 4
    S2_ACK = 5
    STATEMENT = 6
    ATTEMPT_RESULT = 7
    PRESENCE = 8
    STORAGE_PROOF = 9
    TICK = 16
    SNAPSHOT = 17
    POLICY = 18
    REDRIVE = 19


INTERNAL_KINDS: Final = frozenset(
    {Kind.ATTEMPT_RESULT, Kind.PRESENCE, Kind.TICK, Kind.SNAPSHOT, Kind.POLICY, Kind.REDRIVE}
)
_KINDS = frozenset(Kind)
# The sizes that let a mailbox be read out of a body that nobody has checked yet.
_BODY_MIN: dict[int, int] = {
    Kind.ENVELOPE: ENVELOPE_MIN,
    Kind.ACK: SIGNED_ACK_SIZE,
    Kind.ACK_BATCH: 64,
    Kind.SIGNAL: SIGNAL_SIZE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record; `body` is unchecked."""

    kind: int
    shard: int
    body: bytes = field(repr=False)


def encode_record(kind: int, shard: int, body: bytes) -> bytes:
    """The value of one record; BadRecord if it would not be read back."""
    if kind not in _KINDS:
        raise BadRecord(f"record kind {kind} is unknown")
    if not 0 <= shard <= 0xFFFF:
        raise BadRecord(f"shard {shard} is not in 0..65535")
    if len(body) > ENVELOPE_MAX:
        raise BadRecord(f"a record's body has at most {ENVELOPE_MAX} bytes, not {len(body)}")
    return _HEAD.pack(kind, shard) + body


def decode_record(value: bytes) -> Record:
    """Read kind, shard and body, or raise BadRecord; whether the shard is right is not checked."""
    if len(value) > VALUE_MAX:
        raise BadRecord(f"a record has at most {VALUE_MAX} bytes, this one {len(value)}")
    if len(value) < RECORD_HEAD:
        raise BadRecord(f"a record has at least {RECORD_HEAD} bytes, this one {len(value)}")
    kind, shard = _HEAD.unpack_from(value)
    if kind not in _KINDS:
        raise BadRecord(f"record kind {kind} is unknown")
    return Record(kind=kind, shard=shard, body=bytes(value[RECORD_HEAD:]))


def shard_of(recipient: bytes, shards: int) -> int:
    """The shard that owns a mailbox."""
    return int.from_bytes(hashlib.sha256(recipient).digest()[:4]) % shards


def partition_of(shard: int, partitions: int) -> int:
    """The partition of the log that holds a shard."""
    return shard % partitions


def mailbox_of(kind: int, body: bytes) -> bytes:
    """The recipient that a device's record is about, without checking any signature."""
    least = _BODY_MIN.get(kind)
    if least is None:
        raise BadRecord(f"a record of kind {kind} names no mailbox")
    if len(body) < least:
        raise BadRecord(f"a body of kind {kind} has at least {least} bytes, this one {len(body)}")
    if kind == Kind.ENVELOPE:
        return bytes(body[20:52])
    if kind == Kind.SIGNAL and body[0] >= SignalKind.CANCEL:
        return bytes(body[33:65])
    if kind == Kind.SIGNAL:
        return bytes(body[1:33])
    return bytes(body[:32])


def route(kind: int, body: bytes, shards: int, partitions: int) -> tuple[int, bytes]:
    """Where a device's record goes, and the value to append there."""
    shard = shard_of(mailbox_of(kind, body), shards)
    return partition_of(shard, partitions), encode_record(kind, shard, body)


def encode_tick(due_at_ms: int) -> bytes:
    """The body of a tick: the time the shard asked to be woken at."""
    if not 0 <= due_at_ms <= TIME_MS_MAX:
        raise BadRecord(f"time {due_at_ms} is not in 0..{TIME_MS_MAX}")
    return _TICK.pack(due_at_ms)


def decode_tick(body: bytes) -> int:
    """The time a tick was due, or BadRecord."""
    if len(body) != _TICK.size:
        raise BadRecord(f"a tick has {_TICK.size} bytes, this one {len(body)}")
    due_at_ms: int = _TICK.unpack(body)[0]
    if due_at_ms > TIME_MS_MAX:
        raise BadRecord(f"time {due_at_ms} is not in 0..{TIME_MS_MAX}")
    return due_at_ms


def encode_snapshot(round_number: int) -> bytes:
    """The body of a request that a shard writes down its state."""
    if not 0 <= round_number <= 0xFFFF_FFFF:
        raise BadRecord(f"round {round_number} is not in 0..{0xFFFF_FFFF}")
    return _SNAPSHOT.pack(round_number)


def decode_snapshot(body: bytes) -> int:
    """The round of a snapshot, or BadRecord."""
    if len(body) != _SNAPSHOT.size:
        raise BadRecord(f"a snapshot has {_SNAPSHOT.size} bytes, this one {len(body)}")
    round_number: int = _SNAPSHOT.unpack(body)[0]
    return round_number


def encode_policy(number: int, core_version: int, body: bytes) -> bytes:
    """The body of a change of policy; `body` is the policy as JSON."""
    if not 0 <= number <= 0xFFFF_FFFF or not 0 <= core_version <= 0xFFFF:
        raise BadRecord(f"policy {number} of core version {core_version} does not fit u32, u16")
    return _POLICY.pack(number, core_version) + body


def decode_policy(body: bytes) -> tuple[int, int, bytes]:
    """Number, core version and JSON of a change of policy, or BadRecord."""
    if len(body) <= _POLICY.size:
        raise BadRecord(f"a policy has more than {_POLICY.size} bytes, this one {len(body)}")
    number, core_version = _POLICY.unpack_from(body)
    return number, core_version, bytes(body[_POLICY.size :])
