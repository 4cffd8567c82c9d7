"""Faults under load on one broker and one data directory, and the proof after each.

The load goes on whatever happens. After every fault all of it must be committed exactly once:
`check` proves conservation and compares every table, row by row, with an independent fold.
"""

import gc
import json
import os
import signal
import time

import pytest

from schemas.records import Kind
from tests.integration.dying_driver import set_trap
from tests.integration.rig import rig_under_load

pytestmark = [
    pytest.mark.timeout(600),
    # The Kafka client leaves sockets to the garbage collector while its broker is away.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    with rig_under_load(tmp_path_factory.mktemp("faults"), seed=4) as rig:
        yield rig
        assert rig.traffic.refused == []
    gc.collect()


# -- one driver --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "step",
    [
        "before appends",
        "after inbox",
        "after history",
        "before manifest",
        "after flush",
        "after manifest",
        "after dispatch",
    ],
)
def test_a_driver_killed_in_a_commit_loses_and_repeats_nothing(rig, step):
    rig.batches(2)
    rig.spring(step)
    rig.check()


def test_a_driver_killed_while_it_takes_over_from_a_killed_one(rig):
    rig.spring("before manifest")
    for step in ("start before manifest", "start after manifest"):
        set_trap(rig.trap, step, signal.SIGKILL)
        assert rig.start().until_ended() == -signal.SIGKILL
    rig.check()


def test_a_killed_worker_costs_no_restart(rig):
    driver = rig.batches(2)
    daemon, *workers = driver.workers()
    workers[-1].kill()
    rig.batches(3)
    daemon.kill()
    rig.batches(3)
    assert rig.driver is driver
    assert "the query ended" not in driver.said()
    rig.check()


def test_a_killed_jvm_ends_the_driver_with_a_sentence(rig):
    driver = rig.batches(1)
    driver.jvm().kill()
    assert driver.until_ended() == 1
    assert "error: [start_failed] Spark's JVM ended" in driver.said()
    rig.check()


def test_a_killed_broker_loses_nothing_it_acknowledged_and_the_driver_goes_on(rig):
    driver = rig.batches(1)
    before = rig.hub.state().part("broker")
    os.kill(before.pid, signal.SIGKILL)
    killed_at_ms = time.time_ns() // 1_000_000
    driver.until(lambda: rig.hub.state().part("broker").restarts > before.restarts)
    driver.until(lambda: rig.hub.state().part("broker").state == "ready")
    rig.until_caught_up()
    rig.batches(5)
    assert rig.driver is driver
    rig.check()
    rig.check_promises()
    assert any(
        one.value[:1] == bytes((Kind.TICK,)) and one.timestamp > killed_at_ms + 5_000
        for one in rig.read("inbound")
    ), "the clock does not tick any more"


def test_a_driver_asked_to_stop_leaves_exact_snapshots_and_the_next_one_goes_on(rig):
    rig.batches(1)
    with rig.traffic.paused():
        rig.until_caught_up()
        assert rig.driver.stop() == 0
        said = json.loads((rig.data / "run.json").read_bytes())
        assert said["clean"] is True
        assert said["exact"] is True
    assert ": goes on" in rig.driver.said()
    rig.check()


# -- two drivers -------------------------------------------------------------------------------


def test_a_second_driver_is_refused_and_the_first_not_disturbed(rig):
    driver = rig.driver
    second = rig.start()
    assert second.until_ended() == 1
    assert f"[already_running] another driver (pid {driver.pid})" in second.said()
    rig.batches(2)
    assert rig.driver is driver
    rig.check()


@pytest.mark.parametrize("step", ["between batches", "after inbox", "before manifest"])
def test_a_paused_driver_that_wakes_after_another_took_over_is_fenced(rig, step):
    asleep = rig.batches(1) if step == "between batches" else rig.spring(step, signal.SIGSTOP)
    asleep.pause()
    other = rig.start(take_over=True).until_ready()
    rig.batches(2)
    asleep.wake()
    assert asleep.until_ended() == 1
    assert "error: [fenced]" in asleep.said()
    assert rig.batches(2) is other
    third = rig.start()  # the lock is the new one's now
    assert third.until_ended() == 1
    assert f"[already_running] another driver (pid {other.pid})" in third.said()
    rig.check()
