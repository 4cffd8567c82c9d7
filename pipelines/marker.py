"""A file that tells the next start how this run ended: cleanly, by a kill, or with the machine."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """What the last run left behind."""

    boot_id: str
    clean: bool  # it stopped by itself
    exact: bool  # and its snapshots are exactly at the manifest's offsets


class Marker:
    """`<data>/run.json`: written at the start as unclean, and again at a clean stop."""

    def __init__(self, data: Path, boot_id: str | None = None) -> None:
        self._path = data / "run.json"
        self._boot_id = boot_id if boot_id is not None else _boot_id()

    def last(self) -> Ending | None:
        """How the run before ended; None if there was none, or nobody can tell."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Ending)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def machine_went_down(self) -> bool:
        """Whether the run before ended with the machine: files it wrote last may be torn."""
        last = self.last()
        return last is not None and not last.clean and last.boot_id != self._boot_id

    def started(self) -> None:
        self._write(Ending(boot_id=self._boot_id, clean=False, exact=False))

    def stopped(self, *, exact: bool) -> None:
        self._write(Ending(boot_id=self._boot_id, clean=True, exact=exact))

    def _write(self, ending: Ending) -> None:
        temporary = self._path.with_suffix(".tmp")
        with temporary.open("wb") as file:
            file.write(msgspec.json.encode(ending))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)


def _boot_id() -> str:
    return BOOT_ID.read_text().strip() if BOOT_ID.exists() else ""
