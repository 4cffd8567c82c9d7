"""Acks: a signed word that a message was stored, retrieved or read; one by one or in batches.

A frame names the original sender, not its signer: on the wire the signer's address goes before it.
"""

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Self

from nacl.signing import SigningKey

from schemas import signing
from schemas.errors import BadAck
from schemas.limits import TIME_MS_MAX

ACK_SIZE: Final = 121
SIGNED_ACK_SIZE: Final = 153
BATCH_IDS_MAX: Final = 1_000

_SIGNER = signing.ADDRESS_SIZE
_SIGNATURE = signing.SIGNATURE_SIZE
_FRAME: Final = struct.Struct(">B16s32sQ64s")  # ack_type, message_id, sender, timestamp, signature
_BATCH_HEAD: Final = struct.Struct(">BH")  # ack_type, count
_BATCH_TAIL: Final = struct.Struct(">Q64s")  # timestamp, signature
_ID_SIZE = 16
_BATCH_FIXED = _BATCH_HEAD.size + _BATCH_TAIL.size


class AckType(IntEnum):
    """How far a message has come."""

    DELIVERY = 1  # stored
    RECEIPT = 2  # retrieved
    READ = 3


_TYPES = frozenset(AckType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """The frame of exactly 121 bytes; whose signature it carries is not in it."""

    ack_type: int
    message_id: bytes  # 16 bytes
    sender: bytes  # 32 bytes: who sent the message that is acknowledged
    timestamp_ms: int
    signature: bytes = field(repr=False)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read one frame, signature unchecked, or raise BadAck."""
        if len(data) != ACK_SIZE:
            raise BadAck(f"an ack frame has {ACK_SIZE} bytes, this one {len(data)}")
        ack_type, message_id, sender, timestamp_ms, signature = _FRAME.unpack(data)
        _check(ack_type, timestamp_ms)
        return cls(
            ack_type=ack_type,
            message_id=message_id,
            sender=sender,
            timestamp_ms=timestamp_ms,
            signature=signature,
        )

    def encode(self) -> bytes:
        """The 121 bytes that `decode` reads back."""
        _check(self.ack_type, self.timestamp_ms)
        _check_sizes(message_id=(self.message_id, 16), sender=(self.sender, 32))
        _check_sizes(signature=(self.signature, 64))
        return _FRAME.pack(
            self.ack_type, self.message_id, self.sender, self.timestamp_ms, self.signature
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedAck:
    """An ack and the address that signed it."""

    signer: bytes
    ack: Ack

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read signer and frame, signature unchecked, or raise BadAck."""
        if len(data) != SIGNED_ACK_SIZE:
            raise BadAck(f"a signed ack has {SIGNED_ACK_SIZE} bytes, this one {len(data)}")
        return cls(signer=bytes(data[:_SIGNER]), ack=Ack.decode(data[_SIGNER:]))

    def encode(self) -> bytes:
        """The 153 bytes that `decode` reads back."""
        _check_sizes(signer=(self.signer, 32))
        return self.signer + self.ack.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class AckBatch:
    """One word about up to 1,000 messages of one original sender."""

    ack_type: int
    message_ids: tuple[bytes, ...]
    timestamp_ms: int
    signature: bytes = field(repr=False)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read one batch frame, signature unchecked, or raise BadAck."""
        size = len(data)
        if not _BATCH_FIXED < size <= _BATCH_FIXED + BATCH_IDS_MAX * _ID_SIZE:
            raise BadAck(f"a batch of 1..{BATCH_IDS_MAX} acks does not have {size} bytes")
        ack_type, count = _BATCH_HEAD.unpack_from(data)
        if size != _BATCH_FIXED + count * _ID_SIZE:
            raise BadAck(f"a batch of {count} acks does not have {size} bytes")
        end = size - _BATCH_TAIL.size
        timestamp_ms, signature = _BATCH_TAIL.unpack_from(data, end)
        _check(ack_type, timestamp_ms)
        starts = range(_BATCH_HEAD.size, end, _ID_SIZE)
        return cls(
            ack_type=ack_type,
            message_ids=tuple(bytes(data[at : at + _ID_SIZE]) for at in starts),
            timestamp_ms=timestamp_ms,
            signature=signature,
        )

    def encode(self) -> bytes:
        """The bytes that `decode` reads back."""
        _check(self.ack_type, self.timestamp_ms)
        _check_sizes(signature=(self.signature, 64))
        count = len(self.message_ids)
        if not 1 <= count <= BATCH_IDS_MAX:
            raise BadAck(f"a batch has 1..{BATCH_IDS_MAX} acks, not {count}")
        for message_id in self.message_ids:
            _check_sizes(message_id=(message_id, _ID_SIZE))
        head = _BATCH_HEAD.pack(self.ack_type, count)
        return b"".join(
            (head, *self.message_ids, _BATCH_TAIL.pack(self.timestamp_ms, self.signature))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedAckBatch:
    """A batch, the address that signed it, and the sender of all its messages."""

    signer: bytes
    sender: bytes
    batch: AckBatch

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read signer, sender and frame, signature unchecked, or raise BadAck."""
        head = 2 * _SIGNER
        return cls(
            signer=bytes(data[:_SIGNER]),
            sender=bytes(data[_SIGNER:head]),
            batch=AckBatch.decode(data[head:]),
        )

    def encode(self) -> bytes:
        """The bytes that `decode` reads back."""
        _check_sizes(signer=(self.signer, 32), sender=(self.sender, 32))
        return self.signer + self.sender + self.batch.encode()


def open_signed_ack(data: bytes) -> SignedAck:
    """Read a signer and its ack; otherwise BadAck, BadAddress or BadSignature."""
    signed = SignedAck.decode(data)
    signing.check_address(signed.ack.sender)
    signing.verify(signing.ACK, memoryview(data)[:-_SIGNATURE], signed.ack.signature, signed.signer)
    return signed


def open_signed_batch(data: bytes) -> SignedAckBatch:
    """Read a signer and its batch of acks; otherwise BadAck, BadAddress or BadSignature."""
    signed = SignedAckBatch.decode(data)
    signing.check_address(signed.sender)
    signing.verify(
        signing.ACK_BATCH, memoryview(data)[:-_SIGNATURE], signed.batch.signature, signed.signer
    )
    return signed


def sign_ack(
    *, key: SigningKey, ack_type: int, message_id: bytes, sender: bytes, timestamp_ms: int
) -> bytes:
    """The 153 bytes of signer and frame."""
    ack = Ack(
        ack_type=ack_type,
        message_id=message_id,
        sender=sender,
        timestamp_ms=timestamp_ms,
        signature=bytes(_SIGNATURE),
    )
    unsigned = SignedAck(signer=bytes(key.verify_key), ack=ack).encode()[:-_SIGNATURE]
    return unsigned + signing.sign(signing.ACK, unsigned, key)


def sign_batch(
    *,
    key: SigningKey,
    ack_type: int,
    message_ids: tuple[bytes, ...],
    sender: bytes,
    timestamp_ms: int,
) -> bytes:
    """The bytes of signer, sender and batch frame."""
    batch = AckBatch(
        ack_type=ack_type,
        message_ids=message_ids,
        timestamp_ms=timestamp_ms,
        signature=bytes(_SIGNATURE),
    )
    signed = SignedAckBatch(signer=bytes(key.verify_key), sender=sender, batch=batch)
    unsigned = signed.encode()[:-_SIGNATURE]
    return unsigned + signing.sign(signing.ACK_BATCH, unsigned, key)


def _check(ack_type: int, timestamp_ms: int) -> None:
    if ack_type not in _TYPES:
        raise BadAck(f"ack type {ack_type} is unknown")
    if not 0 <= timestamp_ms <= TIME_MS_MAX:
        raise BadAck(f"time {timestamp_ms} is not in 0..{TIME_MS_MAX}")


def _check_sizes(**fields: tuple[bytes, int]) -> None:
    for name, (value, size) in fields.items():
        if len(value) != size:
            raise BadAck(f"{name} has {size} bytes, not {len(value)}")
