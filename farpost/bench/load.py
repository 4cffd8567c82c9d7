"""An open-loop load: envelopes made beforehand, handed over on schedule whatever comes back."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from nacl.signing import SigningKey

from farpost.feed import Feed
from schemas.envelope import HEADER_SIZE, SIGNATURE_SIZE, MessageClass, seal_signed
from schemas.records import Kind

SENDERS = 64
RECIPIENTS = 10_000
DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Sent:
    """One envelope in the log: where, when it was appended, and its id."""

    partition: int
    offset: int
    appended_at_ms: int
    message_id: str


class Maker:
    """Makes signed envelopes of one size, in order in their lanes, to many recipients."""

    def __init__(self, size: int, seed: int = 1) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a load, not a secret
        self._size = size
        self._senders = [SigningKey(self._random.randbytes(32)) for _ in range(SENDERS)]
        self._recipients = [
            bytes(SigningKey(self._random.randbytes(32)).verify_key) for _ in range(RECIPIENTS)
        ]
        self._counters: dict[tuple[int, int], int] = {}

    def make(self, count: int) -> list[bytes]:
        return [self._one() for _ in range(count)]

    def _one(self) -> bytes:
        sender = self._random.randrange(SENDERS)
        recipient = self._random.randrange(RECIPIENTS)
        counter = self._counters.get((sender, recipient), 0) + 1
        self._counters[sender, recipient] = counter
        now_s = int(time.time())
        return seal_signed(
            key=self._senders[sender],
            message_class=MessageClass.STORED,
            priority=1,
            flags=0,
            suite=0,
            message_id=self._random.randbytes(16),
            recipient=self._recipients[recipient],
            session_id=sender.to_bytes(32, "big"),
            counter=counter,
            created_at_s=now_s,
            expires_at_s=now_s + 20 * DAY_S,
            not_before_s=0,
            collapse_tag=0,
            payload=self._random.randbytes(self._size - HEADER_SIZE - SIGNATURE_SIZE),
        )


def drive(feed: Feed, envelopes: Sequence[bytes], rate: int) -> list[Sent]:
    """Hand the envelopes over at `rate` a second; returns once the log has all of them."""
    started = time.monotonic()
    futures = []
    for number, envelope in enumerate(envelopes):
        late_s = time.monotonic() - started - number / rate
        if late_s < 0:
            time.sleep(-late_s)
        futures.append(feed.send(Kind.ENVELOPE, envelope))
    sent = []
    for future, envelope in zip(futures, envelopes, strict=True):
        done = future.get(timeout=60)
        sent.append(Sent(done.partition, done.offset, done.timestamp, envelope[4:20].hex()))
    return sent
