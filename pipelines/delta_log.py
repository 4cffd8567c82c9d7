"""The transaction log of one Delta table as files, for those who must not guess what is there.

<table>/_delta_log/00000000000000000042.json                 commit 42, one action a line
<table>/_delta_log/00000000000000000042.checkpoint.parquet   all of 0..42 in one file
<table>/_delta_log/_last_checkpoint                          a hint: where to begin reading
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import msgspec

from pipelines.durable import create_file, flush_directory, replace_file

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*parquet")
_VERSIONED = re.compile(r"\.?(\d{20})\..*")  # all that belongs to a version, Hadoop's sums too


class DeltaLog:
    """The log of the table in `table`; nothing is cached."""

    def __init__(self, table: Path) -> None:
        self.table = table
        self.directory = table / "_delta_log"
        self.hint = self.directory / "_last_checkpoint"

    def commit_path(self, version: int) -> Path:
        return self.directory / f"{version:020d}.json"

    def commits(self) -> dict[int, Path]:
        """All commit files by version, ascending."""
        return dict(sorted(self._matching(_COMMIT)))

    def checkpoints(self) -> set[int]:
        return {version for version, _ in self._matching(_CHECKPOINT)}

    def _matching(self, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
        if not self.directory.exists():
            return []
        paths = ((pattern.fullmatch(path.name), path) for path in self.directory.iterdir())
        return [(int(match[1]), path) for match, path in paths if match]

    def text(self, version: int) -> str:
        return self.commit_path(version).read_bytes().decode()

    def texts(self, first: int, last: int) -> list[tuple[int, str]]:
        """Versions and texts of the commits from `first` to `last`, both included."""
        return [(version, self.text(version)) for version in range(first, last + 1)]

    def commit(self, version: int, actions: Iterable[dict[str, Any]]) -> str:
        """Add exactly this version and return its text; FileExistsError if another has it.

        Not yet safe from a power cut: the caller flushes before it writes its manifest.
        """
        text = "\n".join(msgspec.json.encode(action).decode() for action in actions) + "\n"
        create_file(self.commit_path(version), text.encode(), flush=False)
        return text

    def rewrite(self, version: int, text: str) -> None:
        """Put a commit back as it was written."""
        replace_file(self.commit_path(version), text.encode())
        self._sum_of(self.commit_path(version)).unlink(missing_ok=True)

    def cut(self, version: int) -> None:
        """Remove this version and all after it, with all that was derived from them."""
        for found, path in self._matching(_VERSIONED):
            if found >= version:
                path.unlink(missing_ok=True)
        self.drop_checkpoints(())

    def drop_checkpoints(self, versions: Collection[int]) -> list[int]:
        """Remove these checkpoints, and a hint that leads nowhere; the commits say the same."""
        dropped = []
        for found, path in self._matching(_CHECKPOINT):
            if found in versions:
                path.unlink(missing_ok=True)
                self._sum_of(path).unlink(missing_ok=True)
                dropped.append(found)
        if self._hinted() not in self.checkpoints():
            self.hint.unlink(missing_ok=True)
            self._sum_of(self.hint).unlink(missing_ok=True)
        flush_directory(self.directory)
        return sorted(dropped)

    def is_torn(self, checkpoint: int) -> bool:
        """Whether a checkpoint is not even a whole Parquet file."""
        paths = [path for found, path in self._matching(_CHECKPOINT) if found == checkpoint]
        return not all(_has_both_ends(path) for path in paths)

    def _hinted(self) -> int | None:
        try:
            return int(msgspec.json.decode(self.hint.read_bytes())["version"])
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def _sum_of(self, path: Path) -> Path:
        """Hadoop's checksum of a file: wrong, and fatal to Spark, once the file has changed."""
        return path.with_name(f".{path.name}.crc")


def _has_both_ends(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(4)
        file.seek(0, os.SEEK_END)
        size = file.tell()
        file.seek(max(0, size - 4))
        return size >= 12 and head == file.read(4) == b"PAR1"


def read_actions(data: bytes) -> list[dict[str, Any]]:
    """The actions of a commit file; ValueError if it is empty or was cut off within a line."""
    actions = [msgspec.json.decode(line) for line in data.split(b"\n") if line.strip()]
    if not actions:
        raise ValueError("it is empty")
    if not all(isinstance(action, dict) and len(action) == 1 for action in actions):
        raise ValueError("it holds something that is no action")
    return actions


def rows_added(actions: Iterable[dict[str, Any]]) -> int:
    """How many rows the files have that these actions add."""
    adds = (action["add"] for action in actions if "add" in action)
    return sum(msgspec.json.decode(add["stats"])["numRecords"] for add in adds)
