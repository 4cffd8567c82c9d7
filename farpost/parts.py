"""Parts: the processes of the stack, each with everything it starts itself.

A part gets a session and a log file of its own, and a mark in its environment that all of its
descendants inherit. The mark is how they are found again: when the part dies or is stopped, when
the supervisor was killed, and before the next start.
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "FARPOST_RUN"  # <id of the run> <name of the part> <data directory>
LOG_BYTES_MAX = 32 * 1024 * 1024
LINE_MAX = 500
_TAIL_BYTES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """A part's own answer to whether it does its work now."""

    ready: bool
    detail: str = ""
    manifest: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """How to start one process and how to ask it whether it is ready."""

    name: str
    command: Callable[[], Sequence[str]]  # called before every start, and may prepare things
    ask: Callable[[], Readiness]
    port: int = 0
    start_timeout_ms: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One life of the stack: the mark on its processes and where their logs go."""

    run_id: str
    data: Path
    logs: Path
    environ: Mapping[str, str]

    def mark(self, part: str) -> str:
        """What a process of this part has in its environment."""
        return f"{self.run_id} {part} {self.data}"


class Child:
    """A started part; it holds the process until that is gone."""

    def __init__(self, part: Part, run: Run) -> None:
        self._mark = run.mark(part.name)
        self._seen: set[psutil.Process] = set()
        self._log = run.logs / f"{part.name}.log"
        command = list(part.command())
        limit_log(self._log)
        with self._log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**run.environ, MARK: self._mark},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process that we started; it may have started others."""
        return self._process.pid

    def ended(self) -> bool:
        """Whether the process that we started is gone, whatever became of its descendants."""
        return self._process.poll() is not None

    def ask_to_stop(self) -> None:
        """Only the process itself is told: it stops what it started in its own order."""
        self._seen.update(marked(self._mark))
        if not self.ended():
            self._process.send_signal(signal.SIGTERM)

    def is_gone(self) -> bool:
        """Whether nothing at all is left of the part."""
        if not self.ended():
            return False
        self._seen.update(marked(self._mark))
        return all(is_over(process) for process in self._seen)

    def kill(self) -> None:
        """End the part and all it started, at once."""
        kill_all(lambda mark: mark == self._mark)
        self._process.wait()

    def reason(self) -> str:
        """Why it ended, as far as can be told: how, and the line in its log that says most."""
        code = self._process.returncode
        text = tail(self._log, since=self._log_start)
        if code is None or code >= 0:
            how = "still running" if code is None else f"exit code {code}"
            line = telling_line(text)
        else:
            how = f"killed by {signal.Signals(-code).name}"
            line = error_line(text)  # its last words have nothing to do with its end
        return f"{how}: {line}" if line else how


def telling_line(text: str) -> str:
    """The last line with an error, else the last line that is not part of a stack trace."""
    plain = [line for line in _lines(text) if not line.startswith(("at ", "...", "File "))]
    return error_line(text) or (plain[-1][:LINE_MAX] if plain else "")


def error_line(text: str) -> str:
    """The line that says most about an error: our own kind of line first."""
    for pattern in (r"error: ", r".*\b(FATAL|ERROR)\b", r"(\S*(Error|Exception)\b|Caused by)"):
        for line in reversed(_lines(text)):
            if re.match(pattern, line):
                return line.removeprefix("error: ")[:LINE_MAX]
    return ""


def tail(path: Path, *, since: int = 0, size: int = _TAIL_BYTES) -> str:
    """The end of a log file; what was written before `since` is left out."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, 2)
            start = since if since <= end else 0  # the file was cut meanwhile
            file.seek(max(start, end - size))
            return file.read(size).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def limit_log(path: Path, size_max: int = LOG_BYTES_MAX) -> None:
    """Move what a log has beyond its limit to one older file; its writers append, so may go on."""
    try:
        if path.stat().st_size <= size_max:
            return
        older = path.with_suffix(".log.1")
        older.write_bytes(path.read_bytes()[-size_max:])
        with path.open("r+b") as file:
            file.truncate(0)
    except OSError:
        return  # a full disk is for the parts to report


def marked(mark: str) -> list[psutil.Process]:
    """The processes that carry exactly this mark."""
    return [process for process, found in _all_marked() if found == mark]


def leftovers(data: Path, *, run_id: str = "") -> list[tuple[int, str]]:
    """Pid and part of every process that another run left on this data directory."""
    left = []
    for process, found in _all_marked():
        run, _, rest = found.partition(" ")
        part, _, directory = rest.partition(" ")
        if directory == str(data) and run != run_id:
            left.append((process.pid, part))
    return left


def kill_leftovers(data: Path, *, run_id: str = "") -> list[str]:
    """End what another run left behind; returns the names of the parts."""
    names = sorted({part for _, part in leftovers(data, run_id=run_id)})
    if names:
        kill_all(lambda mark: mark.split(" ", 2)[2] == str(data) and mark.split(" ")[0] != run_id)
    return names


def kill_all(chosen: Callable[[str], bool]) -> None:
    """Kill every process whose mark is chosen, until none is left."""
    dying: set[psutil.Process] = set()
    while True:
        found = [process for process, mark in _all_marked() if chosen(mark)]
        dying.update(found)
        if all(is_over(process) for process in dying):
            return
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.02)  # not psutil's wait: it would take the exit code from whoever started them


def is_over(process: psutil.Process) -> bool:
    """Whether it has let go of everything; one that is dying loses its mark before its sockets."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _all_marked() -> list[tuple[psutil.Process, str]]:
    found = []
    for process in psutil.process_iter():
        mark = _mark_of(process)
        if mark.count(" ") >= 2:
            found.append((process, mark))
    return found


def _mark_of(process: psutil.Process) -> str:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return ""
        return str(process.environ().get(MARK, ""))
    except (psutil.Error, OSError):
        return ""
