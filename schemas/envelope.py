"""Envelope v1: one sealed message for one device, and all that a relay is allowed to see of it.

Header 144 bytes, payload, signature 64; big-endian. PROTOCOL.md says every byte.
"""

import hashlib
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Self

from nacl.signing import SigningKey

from schemas import signing
from schemas.errors import BadEnvelope, TooLarge

VERSION: Final = 1
ENVELOPE_MAX: Final = 262_144
HEADER_SIZE: Final = 144
SIGNATURE_SIZE: Final = signing.SIGNATURE_SIZE
ENVELOPE_MIN: Final = HEADER_SIZE + SIGNATURE_SIZE
PAYLOAD_MAX: Final = ENVELOPE_MAX - ENVELOPE_MIN
NEVER: Final = 0xFFFF_FFFF
PRIORITY_MAX: Final = 2
SUITE_MAX: Final = 1
FLAG_FIRST_FLIGHT: Final = 1
FLAG_RESEAL: Final = 2
FLAG_EMERGENCY: Final = 4
FLAGS_MAX: Final = 7

_U32_MAX = 0xFFFF_FFFF
_U64_MAX = 0xFFFF_FFFF_FFFF_FFFF
# version, class, priority, suite and flags, message_id, recipient, sender, session_id,
# counter, created_at, expires_at, not_before, collapse tag, payload length
_HEAD: Final = struct.Struct(">BBBB16s32s32s32sIIIIQI")
_SIZES = {"message_id": 16, "recipient": 32, "sender": 32, "session_id": 32, "signature": 64}
_LIMITS = {
    "priority": PRIORITY_MAX,
    "flags": FLAGS_MAX,
    "suite": SUITE_MAX,
    "counter": _U32_MAX,
    "created_at_s": _U32_MAX,
    "expires_at_s": _U32_MAX,
    "not_before_s": _U32_MAX,
    "collapse_tag": _U64_MAX,
}


class MessageClass(IntEnum):
    """What a message asks of those who carry it."""

    STORED = 0
    LIVE = 1
    CONTROL = 2
    CRITICAL = 3
    BEST_EFFORT = 4


_CLASS_MAX = max(MessageClass)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """One envelope as it was on the wire; nothing in it changes on the way."""

    message_class: int
    priority: int
    flags: int  # bits 0-2 only; the suite has its own field
    suite: int
    message_id: bytes  # 16 bytes, chosen by the sender
    recipient: bytes  # 32 bytes, an address
    sender: bytes  # 32 bytes, the address that signed
    session_id: bytes  # 32 bytes
    counter: int  # in the lane (sender, session_id, priority), from 1; 0 = unordered
    created_at_s: int  # 0 = the sender has no clock
    expires_at_s: int  # NEVER = it does not expire
    not_before_s: int  # 0 = now
    collapse_tag: int  # 0 = none
    payload: bytes = field(repr=False)
    signature: bytes = field(repr=False)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the bytes of one envelope, signature unchecked, or raise BadEnvelope."""
        size = len(data)
        if size > ENVELOPE_MAX:
            raise TooLarge(f"an envelope has at most {ENVELOPE_MAX} bytes, this one {size}")
        if size < ENVELOPE_MIN:
            raise BadEnvelope(f"an envelope has at least {ENVELOPE_MIN} bytes, this one {size}")
        head = _HEAD.unpack_from(data)
        version, message_class, priority, bits = head[:4]
        _check_head(version, message_class, priority, bits)
        if head[13] != size - ENVELOPE_MIN:
            raise BadEnvelope(
                f"payload length {head[13]} does not fit an envelope of {size} bytes"
                f" ({size - ENVELOPE_MIN} are there)"
            )
        return cls(
            message_class=message_class,
            priority=priority,
            flags=bits & FLAGS_MAX,
            suite=bits >> 4,
            message_id=head[4],
            recipient=head[5],
            sender=head[6],
            session_id=head[7],
            counter=head[8],
            created_at_s=head[9],
            expires_at_s=head[10],
            not_before_s=head[11],
            collapse_tag=head[12],
            payload=bytes(data[HEADER_SIZE:-SIGNATURE_SIZE]),
            signature=bytes(data[-SIGNATURE_SIZE:]),
        )

    def header(self) -> bytes:
        """The first 144 bytes; a field that does not fit its place raises BadEnvelope."""
        self._check_fields()
        return _HEAD.pack(
            *(VERSION, self.message_class, self.priority, self.suite << 4 | self.flags),
            *(self.message_id, self.recipient, self.sender, self.session_id),
            *(self.counter, self.created_at_s, self.expires_at_s, self.not_before_s),
            *(self.collapse_tag, len(self.payload)),
        )

    def encode(self) -> bytes:
        """The bytes that `decode` reads back."""
        return b"".join((self.header(), self.payload, self.signature))

    def _check_fields(self) -> None:
        if len(self.payload) > PAYLOAD_MAX:
            raise TooLarge(f"a payload has at most {PAYLOAD_MAX} bytes, not {len(self.payload)}")
        for name, size in _SIZES.items():
            if len(getattr(self, name)) != size:
                raise BadEnvelope(f"{name} has {size} bytes, not {len(getattr(self, name))}")
        for name, most in _LIMITS.items():
            if not 0 <= getattr(self, name) <= most:
                raise BadEnvelope(f"{name} {getattr(self, name)} is not in 0..{most}")
        if not 0 <= self.message_class <= _CLASS_MAX:
            raise BadEnvelope(f"class {self.message_class} is unknown")


def _check_head(version: int, message_class: int, priority: int, bits: int) -> None:
    if version != VERSION:
        raise BadEnvelope(f"version {version} is unknown")
    if message_class > _CLASS_MAX:
        raise BadEnvelope(f"class {message_class} is unknown")
    if priority > PRIORITY_MAX:
        raise BadEnvelope(f"priority {priority} is not in 0..{PRIORITY_MAX}")
    if bits & 0x08:
        raise BadEnvelope("flag bit 3 is reserved")
    if bits >> 4 > SUITE_MAX:
        raise BadEnvelope(f"suite {bits >> 4} is unknown")


def envelope_hash(data: bytes) -> bytes:
    """SHA-256 of an encoded envelope without its signature: the hash of dedup and signals."""
    return hashlib.sha256(memoryview(data)[:-SIGNATURE_SIZE]).digest()


def open_signed(data: bytes) -> Envelope:
    """Read an envelope that its sender signed; otherwise BadEnvelope, BadAddress, BadSignature."""
    envelope = Envelope.decode(data)
    signing.check_address(envelope.recipient)
    signing.verify(
        signing.ENVELOPE,
        memoryview(data)[:-SIGNATURE_SIZE],
        envelope.signature,
        envelope.sender,
    )
    return envelope


def seal_signed(
    *,
    key: SigningKey,
    recipient: bytes,
    message_id: bytes,
    session_id: bytes,
    counter: int,
    created_at_s: int,
    expires_at_s: int,
    payload: bytes,
    message_class: int = MessageClass.STORED,
    priority: int = 1,
    flags: int = 0,
    suite: int = 0,
    not_before_s: int = 0,
    collapse_tag: int = 0,
) -> bytes:
    """The bytes of a new envelope, signed by its sender; the payload is taken as it is."""
    envelope = Envelope(
        message_class=message_class,
        priority=priority,
        flags=flags,
        suite=suite,
        message_id=message_id,
        recipient=recipient,
        sender=bytes(key.verify_key),
        session_id=session_id,
        counter=counter,
        created_at_s=created_at_s,
        expires_at_s=expires_at_s,
        not_before_s=not_before_s,
        collapse_tag=collapse_tag,
        payload=payload,
        signature=bytes(SIGNATURE_SIZE),
    )
    unsigned = envelope.header() + payload
    return unsigned + signing.sign(signing.ENVELOPE, unsigned, key)
