"""The driver with a trap in it: python -m tests.integration.dying_driver TRAP DATA BOOTSTRAP PORT

It is the real job. The file TRAP, if it is there, names a step of a commit and a signal: whoever
comes to that step sends itself the signal, SIGKILL to die there or SIGSTOP to fall asleep.
"""

import argparse
import os
import sys
from pathlib import Path

import msgspec

from farpost import jars
from farpost.places import load_settings
from pipelines.job import Options, log_to_stderr, run
from schemas.errors import DeliveryError


class Trap(msgspec.Struct):
    step: str
    signal: int


def set_trap(path, step, number):
    """Lay a trap for a driver that runs, or will run."""
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.encode(Trap(step=step, signal=number)))
    temporary.replace(path)


def walk_into(path):
    """For `on_step`: springs the trap once, if it is set for this step."""

    def on_step(step):
        try:
            trap = msgspec.json.decode(path.read_bytes(), type=Trap)
        except FileNotFoundError:
            return
        if trap.step == step:
            path.unlink()
            os.kill(os.getpid(), trap.signal)

    return on_step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trap", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("bootstrap")
    parser.add_argument("port", type=int)
    parser.add_argument("--conf", type=Path)
    parser.add_argument("--take-over", action="store_true")
    asked = parser.parse_args()
    options = Options(
        data=asked.data,
        bootstrap=asked.bootstrap,
        jars=tuple(jars.jars("spark")),
        status_port=asked.port,
        take_over=asked.take_over,
    )
    log_to_stderr()
    try:
        run(load_settings(asked.conf), options, on_step=walk_into(asked.trap))
    except DeliveryError as error:
        print(f"error: [{error.code}] {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
