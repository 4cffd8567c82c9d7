"""The lock and the state file of a data directory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from farpost.places import Layout
from farpost.state import (
    PartState,
    StackLock,
    StackState,
    read_state,
    running_pid,
    write_state,
)
from schemas.errors import AlreadyRunning, StartFailed

ROOT = Path(__file__).parents[3]
HOLDER = """
import sys, time
from pathlib import Path
from farpost.places import Layout
from farpost.state import StackLock
with StackLock(Layout(Path(sys.argv[1]))):
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def layout(tmp_path):
    return Layout(tmp_path)


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"locked\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_supervisor_is_refused_with_the_pid_and_what_to_do(layout, holder):
    with pytest.raises(AlreadyRunning) as refused:
        StackLock(layout)
    text = str(refused.value)
    assert f"pid {holder.pid}" in text
    assert f"farpost down --data {layout.data}" in text


def test_the_lock_goes_with_its_holder_however_that_ends(layout, holder):
    assert running_pid(layout) == holder.pid
    holder.kill()
    holder.wait()
    assert running_pid(layout) is None
    with StackLock(layout):
        assert running_pid(layout) == os.getpid()
    assert running_pid(layout) is None


def test_no_directory_means_that_nothing_runs(tmp_path):
    assert running_pid(Layout(tmp_path / "none")) is None


def test_a_lock_without_a_pid_is_an_error_with_its_path(layout, holder):
    layout.lock.write_text("")
    with pytest.raises(StartFailed, match=r"stack\.lock is locked"):
        running_pid(layout)


def test_the_state_is_read_back_as_it_was_written(layout):
    state = StackState(state="ready", ports={"broker": 20_001}, parts=[PartState(name="broker")])
    write_state(layout, state)
    assert read_state(layout) == state
    assert not list(layout.data.glob("*.tmp"))


@pytest.mark.parametrize("text", [b"", b"{", b'{"ports": 3}', b"\xff"])
def test_a_torn_state_file_tells_nothing(layout, text):
    layout.state.write_bytes(text)
    assert read_state(layout) == StackState()


def test_two_states_share_nothing():
    StackState().ports["broker"] = 1
    assert StackState().ports == {}
