"""What both sinks share: the port the committer appends through, and how a table is made.

`driver_sink` writes in this process, for one machine; `spark_sink` lets executors write, for a
cluster. They make the same tables.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from pipelines.delta_log import DeltaLog
from pipelines.durable import typed_disk_full
from pipelines.unpack import Floors, arrow_schema
from schemas.errors import Fenced
from schemas.tables import Table

logger = logging.getLogger(__name__)

# Columns with least and greatest value in the log. Few, because each is paid for in every commit.
STATISTICS = frozenset(
    {"partition", "offset", "recipient", "message_id", "at_ms", "shard", "last_offset", "manifest"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where an append goes: exactly this version of the table, or nowhere."""

    owner: str
    manifest: int
    version: int
    floors: Floors


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    rows: int
    text: str  # of the commit file


Chunks_contra = TypeVar("Chunks_contra", contravariant=True)


class Tables(Protocol[Chunks_contra]):
    """Appends the rows of a batch; what a batch's rows are held in depends on the sink."""

    def append(self, table: Table, chunks: Chunks_contra, target: Target) -> Appended | None:
        """Add what lies above the floors as one commit; None, and no commit, if that is nothing.

        Fenced if the version is taken, DiskFull if it does not fit.
        """


def create_table(tables: Path, table: Table) -> None:
    """Make an empty table at version 0; nothing happens if it is there."""
    from deltalake import CommitProperties, DeltaTable

    path = tables / table.name
    path.mkdir(parents=True, exist_ok=True)
    with typed_disk_full(path):
        DeltaTable.create(
            path,
            arrow_schema(table),
            mode="ignore",
            partition_by=list(table.partition_by),
            configuration=_properties(table),
            commit_properties=CommitProperties(max_commit_retries=0),
        )


def _properties(table: Table) -> dict[str, str]:
    statistics = [column.name for column in table.columns if column.name in STATISTICS]
    return {
        # We make them ourselves, and only of committed versions.
        "delta.checkpointInterval": "1000000000",
        "delta.dataSkippingStatsColumns": ",".join(statistics),
        # Old versions leave only by our own upkeep, which knows who still reads them.
        "delta.enableExpiredLogCleanup": "false",
        "delta.logRetentionDuration": "interval 36500 days",
        "delta.deletedFileRetentionDuration": "interval 36500 days",
        "delta.enableDeletionVectors": "false",
    }


def taken(table: Table, target: Target) -> Fenced:
    """The error of an append whose version another driver has."""
    return Fenced(
        f"version {target.version} of table {table.name} was written by another driver while this"
        f" one wrote manifest {target.manifest}"
    )


def is_taken(log: DeltaLog, target: Target) -> bool:
    return log.commit_path(target.version).exists()


class Checkpoints:
    """Sums the logs of tables up for readers, in another thread: it costs more as tables grow."""

    def __init__(self, tables: Path) -> None:
        self._tables = tables
        self._helper = ThreadPoolExecutor(1, thread_name_prefix="delta-checkpoint")
        self._running: dict[str, Future[None]] = {}

    def make(self, name: str, version: int) -> None:
        """Begin one of a committed version, unless one of that table is still being made."""
        running = self._running.get(name)
        if running is None or running.done():
            self._running[name] = self._helper.submit(_checkpoint, self._tables / name, version)

    def wait(self) -> None:
        """Until none is being made."""
        for running in self._running.values():
            running.result()


def _checkpoint(path: Path, version: int) -> None:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        DeltaTable(path, version=version).create_checkpoint()
    except (DeltaError, OSError) as error:
        # Readers only lose time by it, and the next one makes up for it.
        logger.warning("no checkpoint of %s at version %d: %s", path.name, version, error)
