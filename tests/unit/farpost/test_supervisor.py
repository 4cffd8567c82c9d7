"""The supervisor, with small real processes in the place of the broker and the driver."""

import os
import signal
import time

import pytest

from farpost.parts import Part, Readiness, Run, kill_leftovers, leftovers
from farpost.state import StackState
from farpost.supervisor import Patience, Step, Supervisor
from schemas.errors import MissingTool, StartFailed

QUICK = Patience(stop_timeout_ms=2_000, backoff_ms=100, backoff_max_ms=400)

LOOP = "echo up; while :; do sleep 0.05; done"


class World:
    """A supervisor under test and all it said."""

    def __init__(self, tmp_path, patience=QUICK):
        self.data = tmp_path
        self.said = []
        self.patience = patience
        self.supervisor = None

    def part(self, name, script="exec sleep 60", ready=lambda: True, **options):
        return Part(
            name=name,
            command=lambda: ["/bin/sh", "-c", script],
            ask=lambda: Readiness(ready=ready(), detail="" if ready() else "warming up"),
            **options,
        )

    def supervise(self, *items):
        self.supervisor = Supervisor(
            items,
            run=Run(run_id="r1", data=self.data, logs=self.data, environ=os.environ),
            patience=self.patience,
            report=self.said.append,
            publish=lambda state: None,
            state=StackState(state="starting"),
        )
        return self.supervisor

    def until(self, happened, seconds=10):
        deadline = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < deadline, f"it did not happen; said: {self.said}"
            self.supervisor.tick()
            time.sleep(0.01)

    @property
    def state(self):
        return self.supervisor.state

    def is_ready(self):
        return self.state.state == "ready"


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    if world.supervisor is not None:
        world.supervisor.stop(hurry=lambda: True)
    assert leftovers(tmp_path) == []
    kill_leftovers(tmp_path)


def test_parts_and_steps_start_in_order_each_after_the_one_before_is_ready(world, tmp_path):
    order = []
    opened = tmp_path / "open"
    world.supervise(
        world.part("broker", ready=opened.exists),
        Step(name="topics", run=lambda: order.append("topics")),
        world.part("driver"),
    )
    for _ in range(5):
        world.supervisor.tick()
    assert order == []
    assert world.state.part("driver").state == "waiting"
    opened.touch()
    world.until(world.is_ready)
    assert order == ["topics"]
    names = [line.split(":")[0] for line in world.said]
    assert names == ["broker", "broker", "topics", "driver", "driver"]


def test_a_part_that_dies_is_reported_by_name_and_reason_and_started_again(world):
    world.supervise(world.part("broker"))
    world.until(world.is_ready)
    first = world.state.part("broker").pid
    os.kill(first, signal.SIGKILL)
    world.until(lambda: world.state.part("broker").restarts == 1)
    assert "broker: died (killed by SIGKILL); starting it again in 0.1 s" in " ".join(world.said)
    assert world.state.state == "unready"
    world.until(world.is_ready)
    assert world.state.part("broker").pid != first


def test_the_pauses_double_up_to_the_limit():
    patience = Patience(backoff_ms=500, backoff_max_ms=3_000)
    assert [patience.backoff(failures) for failures in range(1, 6)] == [
        *(500, 1_000, 2_000),
        *(3_000, 3_000),
    ]
    assert patience.backoff(10_000) == 3_000


def test_the_other_parts_go_on_while_one_rests(world):
    world.supervise(world.part("broker"), world.part("driver"))
    world.until(world.is_ready)
    driver = world.state.part("driver").pid
    os.kill(world.state.part("broker").pid, signal.SIGKILL)
    world.until(lambda: world.state.part("broker").restarts == 1)
    world.until(world.is_ready)
    assert world.state.part("driver").pid == driver
    assert world.state.part("driver").restarts == 0


def test_a_part_that_never_gets_ready_fails_the_start_after_three_tries(world):
    world.supervise(
        world.part("broker"),
        world.part("driver", "echo error: the state is damaged; exit 1", ready=lambda: False),
    )
    with pytest.raises(StartFailed, match=r"driver died 3 times .*the state is damaged"):
        world.until(lambda: False)
    assert world.state.part("broker").pid is not None
    world.supervisor.stop()
    assert leftovers(world.data) == []


def test_a_part_that_is_too_slow_fails_the_start_with_its_own_words(world):
    world.supervise(world.part("driver", ready=lambda: False, start_timeout_ms=100))
    with pytest.raises(StartFailed, match=r"driver was not ready within 0 s \(warming up\)"):
        world.until(lambda: False)


def test_a_part_that_cannot_be_made_fails_the_start_with_the_reason(world):
    def command():
        raise MissingTool("Java is needed")

    world.supervise(Part(name="broker", command=command, ask=lambda: Readiness(ready=True)))
    with pytest.raises(MissingTool, match="Java is needed"):
        world.supervisor.tick()


def test_a_program_that_is_not_there_is_a_reason_too(world):
    part = Part(
        name="broker", command=lambda: ["/no/such/program"], ask=lambda: Readiness(ready=True)
    )
    world.supervise(part)
    with pytest.raises(StartFailed, match=r"/no/such/program"):
        world.until(lambda: False)


def test_a_step_that_fails_fails_the_start_and_stop_leaves_nothing(world):
    def fail():
        raise StartFailed("no such topic")

    world.supervise(world.part("broker"), Step(name="topics", run=fail), world.part("driver"))
    with pytest.raises(StartFailed, match="no such topic"):
        world.until(lambda: False)
    world.supervisor.stop()
    assert leftovers(world.data) == []


def test_parts_are_stopped_in_reverse_order(world, tmp_path):
    script = f"trap 'echo NAME >> {tmp_path}/order; exit 0' TERM; {LOOP}"
    names = ("broker", "driver", "api")
    world.supervise(*(world.part(name, script.replace("NAME", name)) for name in names))
    world.until(world.is_ready)
    world.until(lambda: all("up" in (tmp_path / f"{n}.log").read_text() for n in names))
    world.supervisor.stop()
    assert (tmp_path / "order").read_text().split() == ["api", "driver", "broker"]
    assert leftovers(tmp_path) == []


def test_a_part_that_does_not_stop_is_killed_after_the_limit(tmp_path):
    world = World(tmp_path, Patience(stop_timeout_ms=300, backoff_ms=50, backoff_max_ms=200))
    world.supervise(world.part("broker", f"trap '' TERM; {LOOP}"))
    world.until(world.is_ready)
    world.until(lambda: "up" in (tmp_path / "broker.log").read_text())
    begun = time.monotonic()
    world.supervisor.stop()
    assert 0.3 <= time.monotonic() - begun < 5
    assert "broker: did not stop by itself; killed" in world.said
    assert leftovers(tmp_path) == []


def test_in_a_hurry_no_part_is_waited_for(tmp_path):
    world = World(tmp_path, Patience(stop_timeout_ms=60_000))
    world.supervise(world.part("broker", f"trap '' TERM; {LOOP}"))
    world.until(lambda: world.is_ready() and "up" in (tmp_path / "broker.log").read_text())
    begun = time.monotonic()
    world.supervisor.stop(hurry=lambda: True)
    assert time.monotonic() - begun < 5
    assert leftovers(tmp_path) == []


def test_what_a_dead_part_left_is_gone_before_its_successor_starts(world, tmp_path):
    script = f"[ -e {tmp_path}/second ] || {{ sleep 77 & }}; touch {tmp_path}/second; exec sleep 60"
    world.supervise(world.part("driver", script))
    world.until(world.is_ready)
    world.until(lambda: (tmp_path / "second").exists() and len(leftovers(tmp_path)) >= 2)
    os.kill(world.state.part("driver").pid, signal.SIGKILL)
    world.until(lambda: world.state.part("driver").restarts == 1)
    world.until(world.is_ready)
    assert [part for _, part in leftovers(tmp_path)] == ["driver"]


def test_a_part_that_stops_answering_is_reported_and_not_restarted(world, tmp_path, monkeypatch):
    monkeypatch.setattr("farpost.supervisor.ASK_INTERVAL_MS", 0)
    well = tmp_path / "well"
    well.touch()
    world.supervise(world.part("driver", ready=well.exists))
    world.until(world.is_ready)
    pid = world.state.part("driver").pid
    well.unlink()
    world.until(lambda: world.state.part("driver").state == "unready")
    assert "driver: not ready any more: warming up" in world.said
    well.touch()
    world.until(world.is_ready)
    assert world.said[-1] == "driver: ready again"
    assert world.state.part("driver").pid == pid


def test_a_part_that_was_ready_for_long_starts_with_a_short_pause_again(world, monkeypatch):
    monkeypatch.setattr("farpost.supervisor.ASK_INTERVAL_MS", 0)
    world.supervise(world.part("broker"))
    world.until(world.is_ready)
    for _ in range(2):
        os.kill(world.state.part("broker").pid, signal.SIGKILL)
        world.until(lambda: world.state.state == "unready")
        world.until(world.is_ready)
    monkeypatch.setattr("farpost.supervisor.STEADY_MS", 0)
    world.supervisor.tick()
    monkeypatch.setattr("farpost.supervisor.STEADY_MS", 60_000)
    os.kill(world.state.part("broker").pid, signal.SIGKILL)
    world.until(lambda: world.state.part("broker").restarts == 3)
    pauses = [line.rsplit(" in ", 1)[1] for line in world.said if "died" in line]
    assert pauses == ["0.1 s", "0.2 s", "0.1 s"]


def test_the_newest_manifest_that_a_part_names_is_published(world):
    part = Part(
        name="driver",
        command=lambda: ["sleep", "60"],
        ask=lambda: Readiness(ready=True, manifest=7),
    )
    world.supervise(part)
    world.until(world.is_ready)
    assert world.state.manifest == 7
