"""The manifest: one small file that commits all tables, the log's offsets and the orders at once.

`<data>/manifests/000000000042.json` says which version of each table readers may see and which
record of each partition comes next. It is linked into place, so it is there whole or not at all,
and two drivers cannot both write the same number. It keeps the text of every commit file made
since the manifest before it: a commit file that is damaged later can be written again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from pipelines.durable import create_file, typed_disk_full
from schemas.errors import Fenced, ManifestDamaged

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow.dataset import Dataset

MANIFESTS_KEPT = 10_000
_NAME = re.compile(r"\d{12}\.json")
_CHECKSUM_START = b',"checksum":"'
_CHECKSUM_END = b'"}\n'
_CHECKSUM_SIZE = len(_CHECKSUM_START) + 64 + len(_CHECKSUM_END)


class LogId(msgspec.Struct, frozen=True, kw_only=True):
    """Which log the tables were made from."""

    cluster_id: str
    topic_id: str


class TableState(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader may see of one table."""

    version: int
    rows_total: int
    commits: list[tuple[int, str]] = []  # version and text, since the manifest before


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """All that is committed; a manifest without ranges is the first word of a new driver run."""

    number: int
    owner: str  # the driver run that wrote it
    created_at_ms: int
    core_version: int
    log: LogId
    checkpoint: str  # name of the query's checkpoint
    next_offsets: list[int]  # by partition
    ranges: list[tuple[int, int, int]]  # (partition, first offset, offset after the last)
    counts: dict[str, int]  # of this manifest: records, and each first outcome by its name
    totals: dict[str, int]  # the same since the beginning of the log
    tables: dict[str, TableState]
    orders: list[str]  # JSON records for the topic `dispatch`
    previous_hash: str  # SHA-256 of the file before, empty for the first
    format: int = 1


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Manifest)


def encode_manifest(manifest: Manifest) -> bytes:
    """JSON whose last member, `checksum`, is the SHA-256 of all bytes before it."""
    body = _encoder.encode(manifest)[:-1]
    digest = hashlib.sha256(body).hexdigest().encode()
    return body + _CHECKSUM_START + digest + _CHECKSUM_END


def decode_manifest(data: bytes) -> Manifest:
    """Read a manifest, or raise ValueError: also if a single bit is not as it was written."""
    body, tail = data[:-_CHECKSUM_SIZE], data[-_CHECKSUM_SIZE:]
    digest = hashlib.sha256(body).hexdigest().encode()
    if tail != _CHECKSUM_START + digest + _CHECKSUM_END:
        raise ValueError("its checksum is wrong")
    return _decoder.decode(data)


class ManifestStore:
    """The directory of manifests; any number of processes may read it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, number: int) -> Path:
        return self.directory / f"{number:012d}.json"

    def numbers(self) -> list[int]:
        """All numbers that are there, ascending."""
        if not self.directory.exists():
            return []
        names = (path.name for path in self.directory.iterdir())
        return sorted(int(name[:12]) for name in names if _NAME.fullmatch(name))

    def exists(self, number: int) -> bool:
        return self.path(number).exists()

    def newest(self) -> Manifest | None:
        """The manifest that counts; None if there never was one."""
        numbers = self.numbers()
        return self.read(numbers[-1]) if numbers else None

    def read(self, number: int) -> Manifest:
        """Read one by number; ManifestDamaged if it is missing or not as it was written."""
        return self.read_with_hash(number)[0]

    def read_with_hash(self, number: int) -> tuple[Manifest, str]:
        """A manifest and what the one after it must have as `previous_hash`."""
        path = self.path(number)
        try:
            data = path.read_bytes()
            manifest = decode_manifest(data)
        except (OSError, ValueError) as error:  # msgspec's errors are ValueErrors
            raise ManifestDamaged(
                f"manifest {number} cannot be read ({error}): move {path} to another place and"
                " start again; what it committed is then read from the log once more"
            ) from error
        return manifest, hashlib.sha256(data).hexdigest()

    def newest_first(self, limit: int | None = None) -> Iterator[Manifest]:
        """The readable manifests from the newest down; damaged ones are passed over."""
        for number in reversed(self.numbers()[-limit:] if limit else self.numbers()):
            try:
                yield self.read(number)
            except ManifestDamaged:
                continue

    def write(self, manifest: Manifest) -> str:
        """Commit: durable when it returns. Fenced if another driver wrote this number first."""
        data = encode_manifest(manifest)
        path = self.path(manifest.number)
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            with typed_disk_full(path):
                create_file(path, data, flush=True)
        # A recovery clears temporary files away: one that is gone was taken over, too.
        except (FileExistsError, FileNotFoundError) as error:
            raise Fenced(
                f"manifest {manifest.number} was written by another driver: this one must stop"
            ) from error
        self._refuse_pruned(manifest.number)
        return hashlib.sha256(data).hexdigest()

    def _refuse_pruned(self, number: int) -> None:
        """A driver that slept so long that its number was written and pruned must not go on.

        Old numbers go first, so while the one before is there, this one was never pruned.
        """
        if number > 1 and not self.exists(number - 1):
            self.path(number).unlink(missing_ok=True)
            raise Fenced(
                f"manifest {number} was written by another driver long ago: this one must stop"
            )

    def prune(self, keep: int = MANIFESTS_KEPT) -> int:
        """Remove the oldest beyond `keep`, lowest number first; returns how many."""
        old = self.numbers()[:-keep]
        for number in old:
            self.path(number).unlink(missing_ok=True)
        return len(old)


def open_tables(data: Path, manifest: Manifest) -> dict[str, DeltaTable]:
    """Every table as this manifest has it, without a JVM."""
    from deltalake import DeltaTable

    return {
        name: DeltaTable(data / "tables" / name, version=state.version)
        for name, state in manifest.tables.items()
    }


def arrow_dataset(table: DeltaTable) -> Dataset:
    """An opened table for pyarrow, read through pyarrow's own file system.

    Through that of delta-rs its threads need Python, and one that asks for it while the process
    exits ends that process with an abort.
    """
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    path = unquote(urlsplit(table.table_uri).path)
    return table.to_pyarrow_dataset(filesystem=SubTreeFileSystem(path, LocalFileSystem()))
