"""The state of a shard as bytes: what the checkpoint, the snapshots and the seeds hold.

    b"fps" ‖ version u8 ‖ CRC-32 of the rest u32 ‖ msgpack of the header

Mailboxes stay packed inside the header; only those a call touches are unpacked. Nothing is ever
pickled. A new layout gets a new version, a migration in `_MIGRATIONS` and a golden file.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import msgspec

from pipelines.turn import Mailbox
from schemas.errors import StateDamaged

VERSION = 1
_MAGIC = b"fps"
_HEAD = 8


class Header(msgspec.Struct, array_like=True):
    """A shard, packed: what is true of all its mailboxes, and they themselves."""

    last_offset: int = -1  # the last offset applied; what is not above it is skipped
    time_ms: int = 0
    policy_number: int = 0
    policy: bytes = b""
    recent: bytes = b""  # see `ring`
    boxes: dict[bytes, tuple[int, msgspec.Raw]] = {}  # recipient -> (due_at_ms, Mailbox)


_MIGRATIONS: dict[int, Callable[[bytes], bytes]] = {}  # version -> body in the next version

_encoder = msgspec.msgpack.Encoder()
_header_decoder = msgspec.msgpack.Decoder(Header)
_box_decoder = msgspec.msgpack.Decoder(Mailbox)


def encode(header: Header) -> bytes:
    body = _encoder.encode(header)
    return _MAGIC + bytes((VERSION,)) + zlib.crc32(body).to_bytes(4, "big") + body


def decode(data: bytes) -> Header:
    """Read a shard's state, or raise StateDamaged: no other error leaves this function."""
    if data[:3] != _MAGIC or len(data) < _HEAD:
        raise StateDamaged(_DAMAGED.format("it is not one of ours"))
    version, body = data[3], data[_HEAD:]
    if zlib.crc32(body).to_bytes(4, "big") != data[4:_HEAD]:
        raise StateDamaged(_DAMAGED.format("its checksum is wrong"))
    while version < VERSION and version in _MIGRATIONS:
        version, body = version + 1, _MIGRATIONS[version](body)
    if version != VERSION:
        raise StateDamaged(_DAMAGED.format(f"its version {version} is unknown to this release"))
    try:
        return _header_decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise StateDamaged(_DAMAGED.format(error)) from error


def encode_box(box: Mailbox) -> bytes:
    return _encoder.encode(box)


def decode_box(data: bytes) -> Mailbox:
    """Read a mailbox, or raise StateDamaged."""
    try:
        return _box_decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise StateDamaged(_DAMAGED.format(error)) from error


_DAMAGED = (
    "the saved state of a shard cannot be read: {}; run `farpost rebuild`, which makes it again"
    " from the snapshots and the log"
)
