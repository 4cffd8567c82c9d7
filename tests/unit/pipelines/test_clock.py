import threading
import time

import pytest

from pipelines.clock import Clock
from pipelines.packs import Report
from pipelines.policies import PolicyFile
from schemas.errors import BrokerUnavailable
from schemas.policy import Policy
from schemas.records import Kind, decode_policy, decode_record


class MemoryLog:
    """Keeps what the clock appends; offsets count from 0 in one partition."""

    def __init__(self):
        self.records = []
        self.away = 0
        self.grew = threading.Condition()

    def append(self, records):
        if self.away:
            self.away -= 1
            raise BrokerUnavailable("the broker is away")
        with self.grew:
            first = len(self.records)
            self.records += [(shard, decode_record(value)) for shard, value in records]
            self.grew.notify_all()
        return list(range(first, first + len(records)))

    def kinds(self, kind):
        return [shard for shard, record in self.records if record.kind == kind]

    def wait_for(self, kind, count):
        with self.grew:
            return self.grew.wait_for(lambda: len(self.kinds(kind)) >= count, timeout=10)


def report(shard, offset, *, wake_at_ms=None, policy_number=1):
    return Report(
        shard=shard,
        partition=0,
        offsets=[offset],
        outcomes=[0],
        orders=[],
        wake_at_ms=wake_at_ms,
        time_ms=0,
        policy_number=policy_number,
        core_version=1,
        touched=[],
    )


@pytest.fixture
def start():
    clocks = []

    def make(log, *, policy=None, snapshot_interval_ms=3_600_000, shards=3):
        clock = Clock(
            log,
            shards=shards,
            trigger_ms=100,
            snapshot_interval_ms=snapshot_interval_ms,
            policy=lambda: policy,
        )
        clock.start()
        clocks.append(clock)
        return clock

    yield make
    for clock in clocks:
        clock.stop()


def test_every_shard_is_ticked_once_after_a_start(start):
    log = MemoryLog()
    start(log)
    assert log.wait_for(Kind.TICK, 3)
    assert sorted(log.kinds(Kind.TICK)) == [0, 1, 2]


def test_a_shard_is_ticked_when_its_wake_is_due(start):
    log = MemoryLog()
    clock = start(log)
    assert log.wait_for(Kind.TICK, 3)
    now_ms = time.time_ns() // 1_000_000
    clock.heard([report(0, 100), report(1, 100, wake_at_ms=now_ms + 50), report(2, 100)])
    assert log.wait_for(Kind.TICK, 4)
    assert log.kinds(Kind.TICK)[3:] == [1]


def test_a_broker_that_is_away_costs_no_tick(start, monkeypatch):
    monkeypatch.setattr("pipelines.clock.BROKER_WAIT_MS", 10)
    monkeypatch.setattr("pipelines.schedule.RETICK_MS", 50)
    log = MemoryLog()
    log.away = 2
    start(log)
    assert log.wait_for(Kind.TICK, 3)


def test_a_shard_that_lags_is_sent_the_newest_policy(start):
    log = MemoryLog()
    clock = start(log, policy=PolicyFile(2, Policy(gap_max=7)))
    assert log.wait_for(Kind.TICK, 3)
    clock.heard([report(0, 100, policy_number=2), report(1, 100, policy_number=1)])
    assert log.wait_for(Kind.POLICY, 1)
    shard, record = next(r for r in log.records if r[1].kind == Kind.POLICY)
    number, _, body = decode_policy(record.body)
    assert (shard, number, Policy.from_json(body)) == (1, 2, Policy(gap_max=7))
    time.sleep(0.2)
    assert log.kinds(Kind.POLICY) == [1]


def test_snapshots_are_asked_for_at_their_interval(start):
    log = MemoryLog()
    start(log, snapshot_interval_ms=50)
    assert log.wait_for(Kind.SNAPSHOT, 6)
    assert sorted(log.kinds(Kind.SNAPSHOT)[:3]) == [0, 1, 2]


def test_asking_for_snapshots_tells_where_the_requests_lie():
    log = MemoryLog()
    clock = Clock(log, shards=2, trigger_ms=100, snapshot_interval_ms=60_000, policy=lambda: None)
    assert clock.ask_snapshots() == {0: 0, 1: 1}
