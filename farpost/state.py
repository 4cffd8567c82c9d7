"""What the supervisor tells the rest of the world: one small file, replaced as a whole.

It outlives the stack, because it also remembers the ports.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Self

import msgspec

from farpost.places import Layout
from schemas.errors import AlreadyRunning, StartFailed


class PartState(msgspec.Struct, kw_only=True):
    """One part as it is now; `state` is waiting, starting, ready, unready, resting or stopped."""

    name: str
    state: str = "waiting"
    pid: int | None = None
    port: int = 0
    since_ms: int = 0
    restarts: int = 0
    reason: str = ""


class StackState(msgspec.Struct, kw_only=True):
    """The stack as it is now; `state` is starting, ready, unready, stopping, stopped or failed."""

    state: str = "stopped"
    run_id: str = ""
    pid: int | None = None
    ports: dict[str, int] = {}
    parts: list[PartState] = []
    manifest: int | None = None
    reason: str = ""

    def part(self, name: str) -> PartState:
        """The part of that name, which must exist."""
        return next(part for part in self.parts if part.name == name)


def read_state(layout: Layout) -> StackState:
    """The last word of the supervisor; a file that is absent or torn tells nothing."""
    try:
        return msgspec.json.decode(layout.state.read_bytes(), type=StackState)
    except (FileNotFoundError, msgspec.DecodeError):
        return StackState()


def write_state(layout: Layout, state: StackState) -> None:
    """Replace the file; a reader sees the old text or the new one."""
    text = msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n"
    part = layout.state.with_suffix(".tmp")
    part.write_bytes(text)
    part.replace(layout.state)


class StackLock:
    """Held by the one supervisor of a data directory; the kernel frees it however that one ends."""

    def __init__(self, layout: Layout) -> None:
        self._file = os.open(layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise AlreadyRunning(
                f"farpost already runs on {layout.data}{_as_pid(layout.lock)}: stop it with "
                f"`farpost down --data {layout.data}`, or choose another directory with --data"
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.ftruncate(self._file, 0)
        os.close(self._file)


def running_pid(layout: Layout) -> int | None:
    """The pid of the supervisor of this directory, or None if there is none."""
    for _ in range(50):
        if not _is_locked(layout.lock):
            return None
        pid = _pid(layout.lock)
        if pid is not None:
            return pid
        time.sleep(0.02)  # it has the lock and is about to write its pid, or about to let go
    raise StartFailed(f"{layout.lock} is locked by a process that does not say which one it is")


def _is_locked(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def _pid(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None
    return int(text) if text.isdigit() else None


def _as_pid(path: Path) -> str:
    pid = _pid(path)
    return f" (pid {pid})" if pid is not None else ""
