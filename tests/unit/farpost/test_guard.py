"""The guard: a supervisor that is killed takes all its parts along."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from farpost.guard import Guard
from farpost.parts import MARK, leftovers

ROOT = Path(__file__).parents[3]
SUPERVISOR = """
import os, sys, time
from pathlib import Path
from farpost.parts import Part, Readiness, Run
from farpost.state import StackState
from farpost.supervisor import Patience, Supervisor
data = Path(sys.argv[1])
script = "sleep 300 & sleep 300 & wait"
parts = [
    Part(name=n, command=lambda: ["/bin/sh", "-c", script], ask=lambda: Readiness(ready=True))
    for n in ("broker", "driver")
]
supervisor = Supervisor(
    parts,
    run=Run(run_id=f"run{os.getpid()}", data=data, logs=data, environ=os.environ),
    patience=Patience(), report=lambda text: None, publish=lambda state: None,
    state=StackState(state="starting"),
)
while True:
    supervisor.tick()
    time.sleep(0.02)
"""


def wait_for(happened, seconds=15):
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def test_nothing_is_left_of_a_supervisor_that_is_killed(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", SUPERVISOR, str(tmp_path)], cwd=ROOT)
    wait_for(lambda: len(leftovers(tmp_path)) == 6)
    guards = [p for p in psutil.Process(process.pid).children() if "farpost.guard" in p.cmdline()]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: not leftovers(tmp_path))
    assert len(guards) == 1
    wait_for(lambda: not guards[0].is_running() or guards[0].status() == psutil.STATUS_ZOMBIE)


def test_a_guard_that_is_killed_is_replaced(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", SUPERVISOR, str(tmp_path)], cwd=ROOT)

    def guards():
        return [
            child
            for child in psutil.Process(process.pid).children()
            if child.status() != psutil.STATUS_ZOMBIE and "farpost.guard" in child.cmdline()
        ]

    wait_for(lambda: len(leftovers(tmp_path)) == 6 and guards())
    first = guards()[0]
    first.kill()
    wait_for(lambda: [one for one in guards() if one.pid != first.pid])
    time.sleep(0.3)  # the new one needs a moment until it listens to nothing but its pipe
    process.kill()
    process.wait()
    wait_for(lambda: not leftovers(tmp_path))


def test_a_dismissed_guard_ends_and_kills_nothing(tmp_path):
    part = subprocess.Popen(["sleep", "60"], env={MARK: f"r9 broker {tmp_path}"})
    try:
        guard = Guard("r9", os.environ)
        guard.dismiss()
        guard.dismiss()
        assert not guard.is_alive()
        assert part.poll() is None
    finally:
        part.kill()
        part.wait()


def test_a_signal_to_its_whole_terminal_does_not_end_the_guard():
    guard = Guard("r8", os.environ)
    wait_for(lambda: psutil.Process(guard.pid).num_threads() and _ignores_sigterm(guard.pid))
    os.kill(guard.pid, signal.SIGTERM)
    os.kill(guard.pid, signal.SIGINT)
    time.sleep(0.1)
    assert guard.is_alive()
    guard.dismiss()


def _ignores_sigterm(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(next(line.split()[1] for line in status.splitlines() if "SigIgn" in line), 16)
    return mask & (1 << (signal.SIGTERM - 1))
