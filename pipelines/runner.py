"""The life of the query: recover, choose a checkpoint, run, and know what to do when it ends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pipelines import checkpoint
from pipelines.checkpoint import Seed, Start
from pipelines.clock import Clock
from pipelines.durable import disk_full, says_no_space, typed_disk_full
from pipelines.manifest import Manifest
from pipelines.marker import Marker
from pipelines.packs import Report
from pipelines.shard import CORE_VERSION
from pipelines.status import Status
from schemas.errors import (
    CheckpointDamaged,
    CoreVersionChanged,
    DeliveryError,
    Fenced,
    OperatorError,
    StartFailed,
    Unavailable,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger(__name__)

TRIES_MAX = 4  # ends of the query in a row without a committed batch
TRY_AGAIN_S = 1.0
TRY_AGAIN_MAX_S = 10.0
LOOK_S = 0.2
SNAPSHOT_WAIT_S = 20.0

OnBatch = Callable[["DataFrame", int], None]


class Hub(Protocol):
    """What the runner needs of log, tables and Spark; `hub` has the real one."""

    owner: str
    topic: str
    shards: int
    checkpoints: Path

    def log_starts(self) -> list[int]:
        """The first offset of each partition; LogChanged or BrokerUnavailable if it is not so."""

    def recover(self) -> Manifest | None:
        """Bring all tables back to the newest manifest, and return it."""

    def seeds(self, manifest: Manifest | None) -> dict[int, Seed]:
        """The newest committed snapshot of each shard."""

    def take_office(self, checkpoint_name: str) -> Manifest:
        """Write the start manifest: from here on every other driver is fenced."""

    def in_office(self) -> bool:
        """Whether the newest manifest is still ours."""

    def start_query(self, start: Start, on_batch: OnBatch) -> StreamingQuery: ...

    def commit(self, batch: DataFrame, batch_id: int) -> tuple[Manifest | None, list[Report]]: ...


class Runner:
    """Keeps one query running until it is told to stop, or a person must act."""

    def __init__(
        self, hub: Hub, clock: Clock, marker: Marker, status: Status, *, take_over: bool
    ) -> None:
        self._hub = hub
        self._clock = clock
        self._marker = marker
        self._status = status
        self._distrust = "another driver may still write to it" if take_over else None
        self._failure: DeliveryError | None = None
        self._ruled = False  # whether this run has ever written a manifest
        self._batch = threading.Lock()  # held while a batch is being committed
        self._tries = 0
        self._waits = 0  # for time to mend something, in a row
        self._heard: dict[int, int] = {}  # shard -> the last offset it answered for
        self._policies: dict[int, int] = {}  # shard -> the policy it follows

    def run(self, stop: threading.Event) -> None:
        """Run until `stop` is set; raises what only a person can mend."""
        self._clock.start()
        try:
            while not stop.is_set():
                try:
                    with typed_disk_full(self._hub.checkpoints):
                        query = self._start()
                except Unavailable as error:
                    self._wait_for(error)
                    stop.wait(TRY_AGAIN_S)
                    continue
                self._watch(query, stop)
        finally:
            self._clock.stop()

    # -- start ------------------------------------------------------------------------------

    def _start(self) -> StreamingQuery:
        self._status.set(state="recovering")
        self._stay_fenced()
        log_starts = self._hub.log_starts()
        manifest = self._hub.recover()
        self._check_core(manifest)
        start = self._choose(manifest, log_starts)
        logger.info("checkpoint %s: %s", start.name, start.reason)
        self._marker.started()
        office = self._hub.take_office(start.name)
        self._ruled = True
        checkpoint.prune(self._hub.checkpoints, start.name)
        self._failure = None
        self._status.set(manifest=office.number)
        query = self._hub.start_query(start, self._on_batch)
        self._status.set(state="running", ready=True, reason=None)
        return query

    def _stay_fenced(self) -> None:
        """Whoever took over deleted our checkpoint: what ends by that must not come back."""
        if self._ruled and not self._hub.in_office():
            raise Fenced("another driver took over from this one: this one must stop")

    def _check_core(self, manifest: Manifest | None) -> None:
        if manifest is None or manifest.core_version == CORE_VERSION:
            return
        ending = self._marker.last()
        if ending is None or not ending.exact:
            raise CoreVersionChanged(
                f"these data were folded by core version {manifest.core_version}, this release"
                f" has {CORE_VERSION}: start the release that has {manifest.core_version} once,"
                " stop it with `farpost down`, then start this one"
            )
        self._distrust = self._distrust or "the core version changed"

    def _choose(self, manifest: Manifest | None, log_starts: list[int]) -> Start:
        """The checkpoint of the manifest if it can be trusted, else a new one from snapshots."""
        reason = self._distrust
        if reason is None and self._marker.machine_went_down():
            reason = "the machine went down under it"
        if reason is None and manifest is None:
            reason = "there is no manifest yet"
        if reason is None and manifest is not None:
            directory = self._hub.checkpoints / manifest.checkpoint / "spark"
            reason = checkpoint.distrust(
                directory, self._hub.topic, log_starts, manifest.next_offsets
            )
            if reason is None:
                return Start(name=manifest.checkpoint, offsets=None, reason="goes on")
        self._distrust = None
        return checkpoint.begin(
            self._hub.checkpoints,
            f"{self._hub.owner}-{time.time_ns():x}",
            seeds=self._hub.seeds(manifest),
            log_starts=log_starts,
            shards=self._hub.shards,
            reason=f"is new, because {reason}",
        )

    # -- run --------------------------------------------------------------------------------

    def _on_batch(self, batch: DataFrame, batch_id: int) -> None:
        with self._batch:
            self._commit(batch, batch_id)

    def _commit(self, batch: DataFrame, batch_id: int) -> None:
        try:
            manifest, reports = self._hub.commit(batch, batch_id)
        except DeliveryError as error:
            self._failure = error  # what reaches the query's exception is only its text
            raise
        self._tries = self._waits = 0
        for report in reports:
            self._policies[report.shard] = report.policy_number
            if report.offsets:
                self._heard[report.shard] = report.offsets[-1]
        self._clock.heard(reports)
        self._status.set(policy_number=min(self._policies.values(), default=0))
        if manifest is not None:
            self._status.set(manifest=manifest.number)

    def _watch(self, query: StreamingQuery, stop: threading.Event) -> None:
        """Wait until the query ends or shall end."""
        while query.isActive and not stop.wait(LOOK_S):
            pass
        if query.isActive:
            self._stop(query)
            return
        self._status.set(ready=False, state="restarting")
        self._ended(str(query.exception() or "it ended without saying why"))
        stop.wait(min(TRY_AGAIN_S * 2**self._waits, TRY_AGAIN_MAX_S))

    def _stop(self, query: StreamingQuery) -> None:
        """Leave snapshots at the very end of what was folded, so that the next start is quick."""
        self._status.set(ready=False, state="stopping")
        self._clock.stop()  # a tick behind a snapshot would make it inexact
        asked = self._snapshot_all(query)
        query.stop()
        with self._batch:  # one that was being committed meanwhile is so to its end
            exact = bool(asked) and all(self._heard.get(s) == offset for s, offset in asked.items())
        with typed_disk_full(self._hub.checkpoints):
            self._marker.stopped(exact=exact)

    def _snapshot_all(self, query: StreamingQuery) -> dict[int, int]:
        """Ask all shards, and wait a while until all have answered; where their requests lie."""
        try:
            asked = self._clock.ask_snapshots()
        except Unavailable as error:
            logger.warning("stopping without snapshots: %s", error)
            return {}
        deadline = time.monotonic() + SNAPSHOT_WAIT_S
        while query.isActive and time.monotonic() < deadline:
            if all(self._heard.get(shard, -1) >= offset for shard, offset in asked.items()):
                break
            time.sleep(LOOK_S)
        return asked

    # -- end --------------------------------------------------------------------------------

    def _ended(self, why: str) -> None:
        """Decide how to go on; raises if it cannot."""
        failure = self._failure
        if failure is None and says_no_space(why):
            failure = disk_full(self._hub.checkpoints)
        if isinstance(failure, Unavailable):  # time mends it, and the checkpoint is not to blame
            self._waits += 1
            self._wait_for(failure)
            return
        self._tries += 1
        if isinstance(failure, Fenced) and not self._hub.in_office():
            raise failure
        if isinstance(failure, OperatorError) and not isinstance(
            failure, Fenced | CheckpointDamaged
        ):
            raise failure
        logger.warning("the query ended (%d. time in a row): %s", self._tries, why)
        self._status.set(reason=why[:500])
        damaged = isinstance(failure, CheckpointDamaged) or "StateDamaged" in why
        if damaged or self._tries == 2:
            self._distrust = "the query could not go on from it"
        if self._tries >= TRIES_MAX:
            raise failure or StartFailed(
                f"the query ended {self._tries} times without committing a batch; the last"
                f" reason: {_short(why)}. The log and the tables are as they were; see the"
                " driver's log"
            )

    def _wait_for(self, missing: Unavailable) -> None:
        logger.warning("waiting (%s): %s", missing.code, missing)
        self._status.set(ready=False, state="waiting", reason=f"{missing.code}: {missing}")


def _short(why: str) -> str:
    """The line of a query's exception that tells a person most."""
    lines = [line.strip() for line in why.splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line or "Exception" in line]
    return (telling or lines or ["unknown"])[-1][:300]
