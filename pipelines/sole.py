"""One driver at a time on a data directory: `<data>/driver.lock`, which the kernel frees."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from schemas.errors import AlreadyRunning


@contextmanager
def sole_driver(data: Path, *, take_over: bool = False) -> Iterator[None]:
    """Hold the directory's lock, unless a driver that is stuck shall be taken over from."""
    with (data / "driver.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if not take_over:
                lock.seek(0)
                raise AlreadyRunning(
                    f"another driver (pid {lock.read().strip() or 'unknown'}) works on"
                    f" {data}; stop it first (one that is stuck: farpost job run --take-over)"
                ) from None
            threading.Thread(target=_inherit, args=(lock,), name="lock", daemon=True).start()
        else:
            _sign(lock)
        yield


def _inherit(lock: IO[str]) -> None:
    """Wait until the driver that was taken over from is gone, so that no third one may start."""
    fcntl.flock(lock, fcntl.LOCK_EX)
    _sign(lock)


def _sign(lock: IO[str]) -> None:
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
