"""The guard: a process that ends all parts of one run if their supervisor vanishes.

Its standard input is a pipe from the supervisor. A pipe that closes without the farewell means
that the supervisor was killed; the kernel closes it however that happened.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Mapping

FAREWELL = b"done"


class Guard:
    """Holds the guard process of one run."""

    def __init__(self, run_id: str, environ: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "farpost.guard", run_id],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
            start_new_session=True,
        )

    def is_alive(self) -> bool:
        """A guard that was killed must be replaced."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def dismiss(self) -> None:
        """Nothing is left to guard; saying so twice is allowed."""
        pipe = self._process.stdin
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError):
            if not pipe.closed:
                pipe.write(FAREWELL)
                pipe.close()
        self._process.wait()


def watch(run_id: str) -> None:
    """Wait for the farewell; without it, kill every part of the run."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.stdin.buffer.read() == FAREWELL:
        return
    from farpost.parts import kill_all

    kill_all(lambda mark: mark.startswith(f"{run_id} "))


if __name__ == "__main__":
    watch(sys.argv[1])
