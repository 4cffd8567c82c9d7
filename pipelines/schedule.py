"""Which shards need a record from the hub itself, and when: ticks, and policies that lag.

A shard says after each call when it wants to be woken. The entry stays until a later call of that
shard answers it: a tick that got lost is sent again, and a doubled one is harmless.
"""

from __future__ import annotations

import msgspec

FAR_MS = 600_000  # what is further away than this need not be exact
MINUTE_MS = 60_000
RETICK_MS = 5_000
RETICK_MAX_MS = 300_000


class Entry(msgspec.Struct):
    at_ms: int | None  # when to send; None if nothing waits for time
    tries: int = 0  # how often it was sent without an answer
    offset: int = -1  # where the newest tick lies in the log, once that is known


class Schedule:
    """The clock's memory. It reads no clock: `now_ms` is an argument."""

    def __init__(self, shards: int, trigger_ms: int, now_ms: int) -> None:
        self.trigger_ms = trigger_ms
        # Every shard is ticked once after a start, and by its answer tells what it waits for.
        self._entries = {shard: Entry(at_ms=now_ms) for shard in range(shards)}
        self._policy_asked: dict[int, tuple[int, int]] = {}  # shard -> (number, asked_at_ms)

    def answered(self, shard: int, last_offset: int, wake_at_ms: int | None, now_ms: int) -> None:
        """A call of the shard ended: it consumed up to `last_offset` and wants this next."""
        entry = self._entries[shard]
        if entry.tries and last_offset < entry.offset:
            return  # this call was before our tick; the tick's own answer follows
        self._entries[shard] = Entry(at_ms=_rounded(wake_at_ms, self.trigger_ms, now_ms))

    def due(self, now_ms: int) -> list[int]:
        """The shards to tick now; each counts as ticked."""
        shards = [
            shard
            for shard, entry in self._entries.items()
            if entry.at_ms is not None and entry.at_ms <= now_ms
        ]
        for shard in shards:
            entry = self._entries[shard]
            entry.at_ms = now_ms + min(RETICK_MS << min(entry.tries, 16), RETICK_MAX_MS)
            entry.tries += 1
        return shards

    def sent(self, shard: int, offset: int) -> None:
        """The tick is in the log, there."""
        self._entries[shard].offset = offset

    def next_at_ms(self) -> int | None:
        """When `due` will have something next; None if nothing waits."""
        return min((e.at_ms for e in self._entries.values() if e.at_ms is not None), default=None)

    def lags(self, shard: int, policy_number: int, newest: int, now_ms: int) -> bool:
        """Whether to send the shard the newest policy; not again until it had time to answer."""
        if policy_number >= newest:
            self._policy_asked.pop(shard, None)
            return False
        number, asked_at_ms = self._policy_asked.get(shard, (0, 0))
        if number == newest and now_ms - asked_at_ms < RETICK_MS:
            return False
        self._policy_asked[shard] = (newest, now_ms)
        return True


def _rounded(wake_at_ms: int | None, trigger_ms: int, now_ms: int) -> int | None:
    """Up to the next trigger, or minute if far: wakes close together share one batch."""
    if wake_at_ms is None:
        return None
    step_ms = MINUTE_MS if wake_at_ms - now_ms > FAR_MS else trigger_ms
    return -(-wake_at_ms // step_ms) * step_ms
