"""The TTL header, 13 bytes inside the sealed content: only the two devices ever see it."""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

from schemas.errors import BadTtl
from schemas.limits import TIME_MS_MAX

TTL_SIZE: Final = 13

_U32_MAX = 0xFFFF_FFFF
_HEADER: Final = struct.Struct(">QIB")  # created_at_ms, ttl_seconds, ttl_type


class TtlType(IntEnum):
    """From when the seconds count."""

    ABSOLUTE = 0  # from created_at
    RELATIVE = 1  # from the first time it was read


@dataclass(frozen=True, slots=True, kw_only=True)
class TtlHeader:
    """How long the content may be shown."""

    created_at_ms: int
    ttl_seconds: int
    ttl_type: int

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read one header, or raise BadTtl."""
        if len(data) != TTL_SIZE:
            raise BadTtl(f"a TTL header has {TTL_SIZE} bytes, this one {len(data)}")
        created_at_ms, ttl_seconds, ttl_type = _HEADER.unpack(data)
        header = cls(created_at_ms=created_at_ms, ttl_seconds=ttl_seconds, ttl_type=ttl_type)
        header._check()
        return header

    def encode(self) -> bytes:
        """The 13 bytes that `decode` reads back."""
        self._check()
        return _HEADER.pack(self.created_at_ms, self.ttl_seconds, self.ttl_type)

    def expires_at_ms(self, first_read_at_ms: int | None) -> int | None:
        """When the content expires; None while a relative one is unread."""
        if self.ttl_type == TtlType.ABSOLUTE:
            return self.created_at_ms + self.ttl_seconds * 1_000
        if first_read_at_ms is None:
            return None
        return first_read_at_ms + self.ttl_seconds * 1_000

    def _check(self) -> None:
        if self.ttl_type not in (TtlType.ABSOLUTE, TtlType.RELATIVE):
            raise BadTtl(f"TTL type {self.ttl_type} is unknown")
        if not 0 <= self.ttl_seconds <= _U32_MAX:
            raise BadTtl(f"ttl_seconds {self.ttl_seconds} is not in 0..{_U32_MAX}")
        if not 0 <= self.created_at_ms <= TIME_MS_MAX:
            raise BadTtl(f"created_at {self.created_at_ms} is not in 0..{TIME_MS_MAX}")
