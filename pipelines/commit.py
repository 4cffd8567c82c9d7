"""One commit: append to the tables, flush, write the manifest, send the orders. In that order.

Until the manifest is linked nothing of a batch counts, and a recovery takes it back; from then on
all of it does, and a start sends its orders again. `on_step` hears of every point between: who is
killed there loses nothing and repeats nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from pipelines.batch import Batch, plan_batch
from pipelines.delta_log import DeltaLog
from pipelines.dispatch import Dispatch
from pipelines.durable import flush_filesystem, typed_disk_full
from pipelines.manifest import LogId, Manifest, ManifestStore, TableState
from pipelines.packs import Report
from pipelines.recovery import Recovery
from pipelines.sinks import Checkpoints, Tables, Target
from schemas.errors import Fenced, LogChanged
from schemas.tables import TABLES

TOUCHED_MAX = 1_000  # recipients in a mark; beyond, it says only that anyone may have something
CHECKPOINT_INTERVAL = 100  # commits of a table
PRUNE_INTERVAL = 1_000  # manifests

C = TypeVar("C")


def _no_step(step: str) -> None:
    """Nobody watches."""


class Committer(Generic[C]):
    """Writes manifests as one driver run; after any error: recover, then start again."""

    def __init__(
        self,
        *,
        data: Path,
        store: ManifestStore,
        tables: Tables[C],
        dispatch: Dispatch,
        now_ms: Callable[[], int],
        on_step: Callable[[str], None] = _no_step,
    ) -> None:
        self._data = data
        self._store = store
        self._tables = tables
        self._checkpoints = Checkpoints(data / "tables")
        self._dispatch = dispatch
        self._now_ms = now_ms
        self._on_step = on_step
        self._newest: Manifest | None = None
        self._newest_hash = ""
        self.mutex = threading.RLock()  # who else changes the tables holds it meanwhile

    @property
    def newest(self) -> Manifest:
        """The manifest this run wrote last."""
        assert self._newest is not None, "the committer was not started"
        return self._newest

    def in_office(self) -> bool:
        """Whether no other driver has taken over since this run started."""
        with self.mutex:
            newest = self._store.newest() if self._newest else None
            return newest is not None and newest.owner == self.newest.owner

    # -- start --------------------------------------------------------------------------------

    def start(
        self,
        recovery: Recovery,
        *,
        owner: str,
        core_version: int,
        log: LogId,
        checkpoint: str,
        first_offsets: list[int],
    ) -> Manifest:
        """Take over: from here on every other driver is fenced.

        `first_offsets` is where the log begins, for tables that have nothing yet. Orders and mark
        of the manifest before are sent first: if this run dies now, the next one still finds them.
        """
        with self.mutex:
            before = recovery.manifest
            if before is not None:
                _check_log(before, log, len(first_offsets))
                self._announce(before, touched=None)
            self._newest_hash = recovery.manifest_hash
            manifest = Manifest(
                number=before.number + 1 if before else 1,
                owner=owner,
                created_at_ms=self._now_ms(),
                core_version=core_version,
                log=log,
                checkpoint=checkpoint,
                next_offsets=before.next_offsets if before else first_offsets,
                ranges=[],
                counts={},
                totals=before.totals if before else {},
                tables=self._recovered_tables(recovery),
                orders=[],
                previous_hash=self._newest_hash,
            )
            self._flush()
            self._on_step("start before manifest")
            self._write(manifest)
            self._on_step("start after manifest")
            self._announce(manifest, touched=[])
            return manifest

    def _recovered_tables(self, recovery: Recovery) -> dict[str, TableState]:
        """The tables at the versions the recovery left, with the commits it made or found."""
        before = recovery.manifest.tables if recovery.manifest else {}
        states = {}
        for name, version in recovery.versions.items():
            log = DeltaLog(self._data / "tables" / name)
            known = before.get(name)
            states[name] = TableState(
                version=version,
                rows_total=known.rows_total if known else 0,
                commits=log.texts(known.version + 1 if known else 0, version),
            )
        return states

    # -- commit -------------------------------------------------------------------------------

    def commit(self, reports: list[Report], chunks: Mapping[int, C]) -> Manifest | None:
        """Commit a batch; None, and nothing written, if all of it was committed before."""
        with self.mutex:
            before = self.newest
            batch = plan_batch(reports, before.next_offsets)
            if batch is None:
                return None
            self._check_alone()
            self._on_step("before appends")
            tables = self._append(batch, chunks)
            self._on_step("before manifest")
            self._flush()
            self._on_step("after flush")
            manifest = self._manifest(batch, tables)
            self._write(manifest)
            self._on_step("after manifest")
            self._announce(manifest, touched=batch.touched)
            self._on_step("after dispatch")
            self._tidy(before)
            return manifest

    def _check_alone(self) -> None:
        """Spares the tables the rows of a driver that was taken over; the link is what decides."""
        number = self.newest.number + 1
        if self._store.exists(number):
            raise Fenced(f"manifest {number} was written by another driver: this one must stop")

    def _append(self, batch: Batch, chunks: Mapping[int, C]) -> dict[str, TableState]:
        before = self.newest
        unknown = chunks.keys() - {table.code for table in TABLES.values()}
        assert not unknown, f"no table has the codes {unknown}"
        states = {}
        for name, table in TABLES.items():
            state = before.tables[name]
            appended = None
            if table.code in chunks:
                target = Target(
                    owner=before.owner,
                    manifest=before.number + 1,
                    version=state.version + 1,
                    floors=before.next_offsets,
                )
                appended = self._tables.append(table, chunks[table.code], target)
                self._on_step(f"after {name}")
            if appended is None:
                states[name] = msgspec.structs.replace(state, commits=[])
            else:
                states[name] = TableState(
                    version=state.version + 1,
                    rows_total=state.rows_total + appended.rows,
                    commits=[(state.version + 1, appended.text)],
                )
        return states

    def _manifest(self, batch: Batch, tables: dict[str, TableState]) -> Manifest:
        before = self.newest
        names = before.totals.keys() | batch.counts.keys()
        return msgspec.structs.replace(
            before,
            number=before.number + 1,
            created_at_ms=self._now_ms(),
            next_offsets=batch.next_offsets,
            ranges=batch.ranges,
            counts=batch.counts,
            totals={
                name: before.totals.get(name, 0) + batch.counts.get(name, 0)
                for name in sorted(names)
            },
            tables=tables,
            orders=batch.orders,
            previous_hash=self._newest_hash,
        )

    def _flush(self) -> None:
        """Make the tables durable, before a manifest names them."""
        with typed_disk_full(self._data):
            flush_filesystem(self._data / "tables")

    def _write(self, manifest: Manifest) -> None:
        self._newest_hash = self._store.write(manifest)
        self._newest = manifest

    def _announce(self, manifest: Manifest, touched: list[str] | None) -> None:
        """Orders first, then the mark; `touched` None means that anyone may have something new."""
        if touched is not None and len(touched) > TOUCHED_MAX:
            touched = None
        mark = {"kind": "committed", "manifest": manifest.number, "touched": touched}
        orders = [order.encode() for order in manifest.orders]
        self._dispatch.send([*orders, msgspec.json.encode(mark)])

    def _tidy(self, before: Manifest) -> None:
        """What readers do not wait for."""
        prune = self.newest.number % PRUNE_INTERVAL == 0
        for name, state in self.newest.tables.items():
            passed = before.tables[name].version // CHECKPOINT_INTERVAL
            # With an old manifest go the texts of its commits: a checkpoint is their last copy.
            if prune or state.version // CHECKPOINT_INTERVAL > passed:
                self._checkpoints.make(name, state.version)
        if prune:
            self._store.prune()

    def close(self) -> None:
        """Wait until nothing is written any more."""
        self._checkpoints.wait()


def _check_log(before: Manifest, log: LogId, partitions: int) -> None:
    if before.log != log:
        raise LogChanged(
            f"the tables were made from topic {before.log.topic_id} of cluster"
            f" {before.log.cluster_id}, but the log now is topic {log.topic_id} of cluster"
            f" {log.cluster_id}: bring the old log back, or begin with an empty data directory"
        )
    if len(before.next_offsets) != partitions:
        raise LogChanged(
            f"the tables were made from {len(before.next_offsets)} partitions, but the log now has"
            f" {partitions}: bring the old log back, or begin with an empty data directory"
        )
