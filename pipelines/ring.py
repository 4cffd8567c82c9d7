"""The ids a shard settled last, each with a short hash of its envelope, as one string of bytes.

It stays packed: most calls look up a few ids or none, and unpacking thousands would cost more
than the search.
"""

from __future__ import annotations

import hashlib

_KEY = 8
_ENTRY = 16  # key 8 ‖ short hash 8


class Ring:
    def __init__(self, packed: bytes, size_max: int) -> None:
        self._packed = bytearray(packed)
        self._size_max = size_max

    def add(self, recipient: bytes, sender: bytes, message_id: bytes, short_hash: bytes) -> None:
        self._packed += _key(recipient, sender, message_id) + short_hash

    def get(self, recipient: bytes, sender: bytes, message_id: bytes) -> bytes | None:
        """The short hash kept for this message; None if it is not among the newest."""
        key = _key(recipient, sender, message_id)
        at = self._packed.rfind(key)
        while at > 0 and at % _ENTRY:
            at = self._packed.rfind(key, 0, at + _KEY - 1)
        if at < 0 or at < len(self._packed) - self._size_max * _ENTRY:
            return None
        return bytes(self._packed[at + _KEY : at + _ENTRY])

    def resize(self, size_max: int) -> None:
        """Keep this many from now on; what the old limit had given up does not come back."""
        self._trim()
        self._size_max = size_max
        self._trim()

    def to_bytes(self) -> bytes:
        self._trim()
        return bytes(self._packed)

    def _trim(self) -> None:
        surplus = len(self._packed) - self._size_max * _ENTRY
        if surplus > 0:
            del self._packed[:surplus]


def _key(recipient: bytes, sender: bytes, message_id: bytes) -> bytes:
    return hashlib.blake2b(recipient + sender + message_id, digest_size=_KEY).digest()
