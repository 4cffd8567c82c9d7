"""Signals: signed words about a message or a lane that are not acks; always 173 bytes.

Signals 0x1x come from the recipient, all others from the sender. Those of a lane carry their
priority in the kind and the session_id where the others name a message and its hash.
"""

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Self

from nacl.signing import SigningKey

from schemas import signing
from schemas.errors import BadSignal
from schemas.limits import TIME_MS_MAX

SIGNAL_SIZE: Final = 173

_U32_MAX = 0xFFFF_FFFF
_PRIORITY_MAX = 2
_SIGNATURE = signing.SIGNATURE_SIZE
_FRAME: Final = struct.Struct(
    ">B32s32s32sIQ64s"
)  # kind, signer, peer, subject, arg, time, signature


class SignalKind(IntEnum):
    """What is said; VOID and ELSEWHERE are sent as kind + priority."""

    NAK = 0x10  # arg = try again after this many seconds
    TERM = 0x11  # arg = reason; never try again
    UNDECRYPTABLE = 0x12
    TAKEN = 0x13  # delete it and do not tell the sender
    CANCEL = 0x20
    VOID = 0x30  # arg = a counter that will never be sent
    ELSEWHERE = 0x40  # arg = a counter that was delivered by another way


_KINDS: dict[int, tuple[SignalKind, int | None]] = {
    **{kind: (kind, None) for kind in SignalKind if kind < SignalKind.VOID},
    **{SignalKind.VOID + p: (SignalKind.VOID, p) for p in range(_PRIORITY_MAX + 1)},
    **{SignalKind.ELSEWHERE + p: (SignalKind.ELSEWHERE, p) for p in range(_PRIORITY_MAX + 1)},
}
_WITHOUT_ARG = frozenset({SignalKind.UNDECRYPTABLE, SignalKind.TAKEN, SignalKind.CANCEL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One signal; a lane signal has session_id and priority, the others message_id and hash."""

    kind: SignalKind
    priority: int | None
    signer: bytes
    peer: bytes
    message_id: bytes | None
    hash_prefix: bytes | None  # the first 16 bytes of envelope_hash
    session_id: bytes | None
    arg: int
    time_ms: int
    signature: bytes = field(repr=False)

    @property
    def mailbox(self) -> bytes:
        """The recipient whose mailbox this is about."""
        return self.signer if self.kind < SignalKind.CANCEL else self.peer

    @property
    def sender(self) -> bytes:
        """Who sent the message, or owns the lane, that this is about."""
        return self.peer if self.kind < SignalKind.CANCEL else self.signer

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read one signal, signature unchecked, or raise BadSignal."""
        if len(data) != SIGNAL_SIZE:
            raise BadSignal(f"a signal has {SIGNAL_SIZE} bytes, this one {len(data)}")
        code, signer, peer, subject, arg, time_ms, signature = _FRAME.unpack(data)
        if code not in _KINDS:
            raise BadSignal(f"signal kind 0x{code:02x} is unknown")
        kind, priority = _KINDS[code]
        _check(kind, arg, time_ms)
        of_lane = priority is not None
        return cls(
            kind=kind,
            priority=priority,
            signer=signer,
            peer=peer,
            message_id=None if of_lane else subject[:16],
            hash_prefix=None if of_lane else subject[16:],
            session_id=subject if of_lane else None,
            arg=arg,
            time_ms=time_ms,
            signature=signature,
        )

    def encode(self) -> bytes:
        """The 173 bytes that `decode` reads back."""
        _check(self.kind, self.arg, self.time_ms)
        for name, value, size in (
            ("signer", self.signer, 32),
            ("peer", self.peer, 32),
            ("signature", self.signature, 64),
        ):
            if len(value) != size:
                raise BadSignal(f"{name} has {size} bytes, not {len(value)}")
        code, subject = self._subject()
        return _FRAME.pack(
            code, self.signer, self.peer, subject, self.arg, self.time_ms, self.signature
        )

    def _subject(self) -> tuple[int, bytes]:
        """The kind as it is sent, and the 32 bytes that say what the signal is about."""
        others: tuple[object, object]
        if self.kind >= SignalKind.VOID:
            if self.priority is None or self.session_id is None:
                raise BadSignal(f"{self.kind.name} needs priority and session_id")
            code, subject = self.kind + self.priority, self.session_id
            fits = 0 <= self.priority <= _PRIORITY_MAX and len(subject) == 32
            others = (self.message_id, self.hash_prefix)
        else:
            if self.message_id is None or self.hash_prefix is None:
                raise BadSignal(f"{self.kind.name} needs message_id and hash_prefix")
            code, subject = int(self.kind), self.message_id + self.hash_prefix
            fits = len(self.message_id) == len(self.hash_prefix) == 16
            others = (self.session_id, self.priority)
        if not fits or others != (None, None):
            raise BadSignal(
                "a lane signal has priority 0..2 and session_id (32 bytes) and nothing else,"
                " any other has message_id and hash_prefix (16 bytes each)"
            )
        return code, subject


def open_signed_signal(data: bytes) -> Signal:
    """Read a signal that its signer signed; otherwise BadSignal, BadAddress or BadSignature."""
    signal = Signal.decode(data)
    signing.check_address(signal.peer)
    signing.verify(signing.SIGNAL, memoryview(data)[:-_SIGNATURE], signal.signature, signal.signer)
    return signal


def sign_signal(
    *,
    key: SigningKey,
    kind: SignalKind,
    peer: bytes,
    time_ms: int,
    arg: int = 0,
    message_id: bytes | None = None,
    hash_prefix: bytes | None = None,
    session_id: bytes | None = None,
    priority: int | None = None,
) -> bytes:
    """The 173 bytes of a new signal; `peer` is the other side, sender or recipient."""
    signal = Signal(
        kind=kind,
        priority=priority,
        signer=bytes(key.verify_key),
        peer=peer,
        message_id=message_id,
        hash_prefix=hash_prefix,
        session_id=session_id,
        arg=arg,
        time_ms=time_ms,
        signature=bytes(_SIGNATURE),
    )
    unsigned = signal.encode()[:-_SIGNATURE]
    return unsigned + signing.sign(signing.SIGNAL, unsigned, key)


def _check(kind: SignalKind, arg: int, time_ms: int) -> None:
    if not 0 <= arg <= _U32_MAX:
        raise BadSignal(f"arg {arg} is not in 0..{_U32_MAX}")
    if kind in _WITHOUT_ARG and arg:
        raise BadSignal(f"{kind.name} has no arg, so it must be 0, not {arg}")
    if kind >= SignalKind.VOID and not arg:
        raise BadSignal(f"{kind.name} names a counter, and counters start at 1")
    if not 0 <= time_ms <= TIME_MS_MAX:
        raise BadSignal(f"time {time_ms} is not in 0..{TIME_MS_MAX}")
