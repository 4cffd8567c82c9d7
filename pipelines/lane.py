"""The order of one lane: counters of one sender, session and priority, from 1.

A lane knows the next counter it expects. What is ahead of it is either *held* (the message is
here and waits) or *ahead* (the sender said it will not come here). What is below it is passed,
except for the *skipped* ranges: counters given up on after a gap, each deliverable once.

    expected == counter    deliver, then drain whatever follows
    expected <  counter    hold, if the gap is not too wide
    expected >  counter    deliver if it was skipped, else it is a replay
"""

from __future__ import annotations

import bisect

import msgspec


class Pending(msgspec.Struct, array_like=True):
    """A message the hub still answers for; with its id about 45 bytes of state."""

    short_hash: bytes  # the first 8 bytes of envelope_hash
    expires_at_s: int  # as applied; NEVER for none
    counter: int  # 0 if unordered
    position: int  # 0 while it may not be fetched
    not_before_s: int  # 0 unless scheduled


class Lane(msgspec.Struct, array_like=True):
    expected: int = 1
    keep_until_s: int = 0  # the latest expiry any of its envelopes was signed with
    pending: dict[bytes, Pending] = {}
    held: dict[int, tuple[bytes, int]] = {}  # counter -> (message_id, received_at_ms)
    ahead: dict[int, bool] = {}  # counter -> may still come here once
    skipped: list[tuple[int, int]] = []  # ascending, disjoint, inclusive

    def is_new(self) -> bool:
        """No counter was ever seen here, though unordered messages may have been."""
        return self.expected == 1 and not self.held and not self.ahead

    def take_skipped(self, counter: int, ranges_max: int) -> bool:
        """Use up a skipped counter; False if it was not skipped."""
        at = bisect.bisect_right(self.skipped, (counter, 1 << 32)) - 1
        if at < 0 or not self.skipped[at][0] <= counter <= self.skipped[at][1]:
            return False
        low, high = self.skipped[at]
        rest = [(low, counter - 1), (counter + 1, high)]
        self.skipped[at : at + 1] = [(a, b) for a, b in rest if a <= b]
        del self.skipped[:-ranges_max]
        return True

    def add_skipped(self, low: int, high: int, ranges_max: int) -> None:
        """Remember a range as skipped; beyond the limit the oldest range is passed for good."""
        if self.skipped and self.skipped[-1][1] + 1 == low:
            low = self.skipped.pop()[0]
        self.skipped.append((low, high))
        del self.skipped[:-ranges_max]

    def drain(self, ranges_max: int) -> list[bytes]:
        """Advance over all that follows without a gap; the messages released, in order."""
        released = []
        while True:
            if self.expected in self.held:
                released.append(self.held.pop(self.expected)[0])
            elif self.expected in self.ahead:
                if self.ahead.pop(self.expected):
                    self.add_skipped(self.expected, self.expected, ranges_max)
            else:
                return released
            self.expected += 1

    def skip_gap(self, ranges_max: int) -> tuple[int, int]:
        """Give up on the counters before the lowest held one; the range that was skipped."""
        low, high = self.expected, min(self.held) - 1
        counter = low
        while counter <= high:
            start = counter
            while counter <= high and counter not in self.ahead:
                counter += 1
            if start < counter:
                self.add_skipped(start, counter - 1, ranges_max)
            if counter <= high:
                if self.ahead.pop(counter):
                    self.add_skipped(counter, counter, ranges_max)
                counter += 1
        self.expected = high + 1
        return low, high

    def oldest_held_ms(self) -> int | None:
        return min((received for _, received in self.held.values()), default=None)
