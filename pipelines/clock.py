"""The clock: a thread of the driver that puts time, policy and snapshot requests into the log."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from pipelines.packs import Report
from pipelines.policies import PolicyFile
from pipelines.schedule import Schedule
from pipelines.shard import CORE_VERSION
from schemas.errors import Unavailable
from schemas.records import Kind, encode_policy, encode_record, encode_snapshot, encode_tick

logger = logging.getLogger(__name__)

POLICY_LOOK_MS = 1_000
BROKER_WAIT_MS = 1_000


class Log(Protocol):
    """Where the clock writes; `append` returns once the records are durable."""

    def append(self, records: list[tuple[int, bytes]]) -> list[int]:
        """Append (shard, value) records and return their offsets."""
        ...


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Clock:
    """Ticks shards that are due, renews policies that lag, asks for snapshots."""

    def __init__(
        self,
        log: Log,
        *,
        shards: int,
        trigger_ms: int,
        snapshot_interval_ms: int,
        policy: Callable[[], PolicyFile | None],
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._log = log
        self._now_ms = now_ms
        self._policy = policy
        self._snapshot_interval_ms = snapshot_interval_ms
        self._snapshot_at_ms = now_ms() + snapshot_interval_ms
        self._shards = shards
        self._schedule = Schedule(shards, trigger_ms, now_ms())
        self._numbers: dict[int, int] = {}  # shard -> the policy number it reported last
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="clock", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(timeout=10)

    def heard(self, reports: Iterable[Report]) -> None:
        """Take note of what shards said in a committed batch."""
        with self._changed:
            for report in reports:
                self._numbers[report.shard] = report.policy_number
                if report.offsets:
                    self._schedule.answered(
                        report.shard, report.offsets[-1], report.wake_at_ms, self._now_ms()
                    )
            self._changed.notify()

    def ask_snapshots(self) -> dict[int, int]:
        """Ask every shard for a snapshot now; the offset of each request by shard."""
        body = encode_snapshot(self._now_ms() // 1000)
        records = [
            (shard, encode_record(Kind.SNAPSHOT, shard, body)) for shard in range(self._shards)
        ]
        return dict(enumerate(self._log.append(records)))

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._stopping:
                    return
                self._changed.wait(self._wait_ms() / 1000)
                if self._stopping:
                    return
            try:
                self._turn()
            except Unavailable as error:
                logger.warning("the clock waits for the log: %s", error)
                time.sleep(BROKER_WAIT_MS / 1000)

    def _wait_ms(self) -> int:
        now_ms = self._now_ms()
        next_ms = self._schedule.next_at_ms() or now_ms + POLICY_LOOK_MS
        return max(1, min(next_ms - now_ms, POLICY_LOOK_MS))

    def _turn(self) -> None:
        now_ms = self._now_ms()
        if now_ms >= self._snapshot_at_ms:
            self.ask_snapshots()
            self._snapshot_at_ms = now_ms + self._snapshot_interval_ms
        with self._changed:
            shards = self._schedule.due(now_ms)
            lagging = self._lagging(now_ms)
        offsets = self._log.append(
            [(shard, encode_record(Kind.TICK, shard, encode_tick(now_ms))) for shard in shards]
            + lagging
        )
        with self._changed:
            for shard, offset in zip(shards, offsets, strict=False):
                self._schedule.sent(shard, offset)

    def _lagging(self, now_ms: int) -> list[tuple[int, bytes]]:
        newest = self._policy()
        if newest is None:
            return []
        body = encode_policy(newest.number, CORE_VERSION, newest.policy.to_json())
        return [
            (shard, encode_record(Kind.POLICY, shard, body))
            for shard, number in self._numbers.items()
            if self._schedule.lags(shard, number, newest.number, now_ms)
        ]
