"""A driver that is killed: python -m tests.unit.pipelines.victim DATA SEED GOAL [KILL]

It folds the made-up log up to GOAL in each partition, with cuts drawn from SEED, beginning a
little before what is committed, as a query does that goes on from an older checkpoint. KILL is
`step NAME`, a step of the committer, or `line N`, the N-th line executed in what writes or
mends files.
"""

import os
import random
import signal
import sys
from pathlib import Path

from tests.batches import PARTITIONS, Driver

# Where a kill can leave something half done; lines elsewhere would only dilute the draw.
WRITERS = {
    "commit.py",
    "delta_log.py",
    "driver_sink.py",
    "durable.py",
    "manifest.py",
    "recovery.py",
}


class FileDispatch:
    """A topic that outlives the process."""

    def __init__(self, path):
        self.path = path

    def send(self, records):
        with self.path.open("ab") as file:
            file.write(b"".join(record + b"\n" for record in records))


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at_step(name):
    return lambda step: die() if step == name else None


def kill_at_line(number):
    left = number

    def trace(frame, event, arg):
        nonlocal left
        if Path(frame.f_code.co_filename).name not in WRITERS:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                die()
        return trace

    sys.settrace(trace)


def fold(driver, rng, goal):
    begin = driver.start().next_offsets
    position = [max(0, offset - rng.randrange(6)) for offset in begin]
    while min(position) < goal:
        ends = [min(goal, offset + rng.randrange(1, 12)) for offset in position]
        driver.commit(*((p, position[p], ends[p]) for p in range(PARTITIONS)))
        position = ends


def main(data, seed, goal, kill=""):
    data = Path(data)
    kind, _, what = kill.partition(" ")
    driver = Driver(
        data,
        f"run{seed}",
        dispatch=FileDispatch(data / "dispatch"),
        on_step=kill_at_step(what) if kind == "step" else lambda step: None,
    )
    if kind == "line":
        kill_at_line(int(what))
    fold(driver, random.Random(int(seed)), int(goal))
    sys.settrace(None)
    driver.committer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
