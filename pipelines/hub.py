"""The hub's real parts behind the runner's port: the log, the tables, the Spark session."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
import pyarrow.compute as pc

from pipelines import kafka
from pipelines.checkpoint import Seed, Start
from pipelines.clock import wall_clock_ms
from pipelines.commit import Committer
from pipelines.dispatch import KafkaDispatch
from pipelines.driver_sink import DriverSink, DriverTables, Packs
from pipelines.log import KafkaLog
from pipelines.manifest import LogId, Manifest, ManifestStore, arrow_dataset, open_tables
from pipelines.packs import Report
from pipelines.recovery import Recovery, recover
from pipelines.shard import CORE_VERSION
from pipelines.source import read_log
from pipelines.spark_sink import SparkChunks, SparkSink, SparkTables
from pipelines.topics import KnownLog, check_log, ensure_log
from schemas.settings import Settings
from schemas.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger(__name__)


class Query(Protocol):
    """What turns the log's records into packs; `stateful.fold_query` is the one that counts."""

    def __call__(
        self, source: DataFrame, *, shards: int, partitions: int, seeds: str
    ) -> DataFrame: ...


class SparkHub:
    """Everything the runner asks for, done for real."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        *,
        data: Path,
        bootstrap: str,
        owner: str,
        query: Query,
        on_step: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._data = data
        self._bootstrap = bootstrap
        self._query = query
        self._known: KnownLog = ensure_log(settings, bootstrap, data)
        self._recovery: Recovery | None = None
        self.owner = owner
        self.topic = self._known.topic
        self.shards = self._known.shards
        self.checkpoints = data / "checkpoints"
        self._producer = kafka.producer(settings, bootstrap)
        self.log = KafkaLog(self._producer, self.topic, self._known.partitions)
        dispatch = KafkaDispatch(self._producer, Topics(settings.kafka.topic_prefix).dispatch)
        dispatch.warm()
        self._store = ManifestStore(data / "manifests")
        self._committer, self._sink = _sink(settings.job.sink, data, self._store, dispatch, on_step)

    def log_starts(self) -> list[int]:
        check_log(self._known, self._settings, self._bootstrap, self._data)
        client = kafka.consumer(self._settings, self._bootstrap)
        try:
            starts = kafka.begin_offsets(client, self.topic)
        finally:
            client.close()
        return [starts[partition] for partition in range(self._known.partitions)]

    def recover(self) -> Manifest | None:
        self._recovery = recover(self._store, self._data / "tables")
        for sentence in self._recovery.notes:
            logger.info("recovery: %s", sentence)
        return self._recovery.manifest

    def seeds(self, manifest: Manifest | None) -> dict[int, Seed]:
        """The newest snapshot of each shard that the manifest has."""
        if manifest is None:
            return {}
        snapshots = arrow_dataset(open_tables(self._data, manifest)["snapshots"])
        newest: dict[int, int] = {}
        for row in snapshots.to_table(columns=["shard", "last_offset"]).to_pylist():
            newest[row["shard"]] = max(newest.get(row["shard"], -1), row["last_offset"])
        oldest = min(newest.values(), default=0)
        found = snapshots.to_table(
            columns=["shard", "last_offset", "blob"], filter=pc.field("last_offset") >= oldest
        )
        return {
            row["shard"]: Seed(**row)
            for row in found.to_pylist()
            if row["last_offset"] == newest[row["shard"]]
        }

    def take_office(self, checkpoint_name: str) -> Manifest:
        assert self._recovery is not None, "recover comes first"
        return self._committer.start(
            self._recovery,
            owner=self.owner,
            core_version=CORE_VERSION,
            log=LogId(cluster_id=self._known.cluster_id, topic_id=self._known.topic_id),
            checkpoint=checkpoint_name,
            first_offsets=self.log_starts(),
        )

    def in_office(self) -> bool:
        return self._committer.in_office()

    def start_query(
        self, start: Start, on_batch: Callable[[DataFrame, int], None]
    ) -> StreamingQuery:
        directory = self.checkpoints / start.name
        source = read_log(
            self._spark,
            topic=self.topic,
            options=kafka.spark_options(self._settings, self._bootstrap),
            starting_offsets=_starting_offsets(self.topic, start.offsets),
            offsets_max=self._settings.job.offsets_per_trigger,
            shards=self.shards,
            partitions=self._known.partitions,
        )
        rows = self._query(
            source,
            shards=self.shards,
            partitions=self._known.partitions,
            seeds=str(directory / "seeds"),
        )
        return (
            rows.writeStream.queryName("farpost")
            .foreachBatch(on_batch)
            .option("checkpointLocation", str(directory / "spark"))
            .trigger(processingTime=f"{self._settings.job.trigger_ms} milliseconds")
            .start()
        )

    def commit(self, batch: DataFrame, batch_id: int) -> tuple[Manifest | None, list[Report]]:
        return self._sink.write(batch, batch_id)

    def close(self) -> None:
        self._producer.close()


def _starting_offsets(topic: str, offsets: list[int] | None) -> str:
    """As Spark wants it; a checkpoint that goes on knows better, and ignores it."""
    if offsets is None:
        return "earliest"
    by_partition = {str(partition): offset for partition, offset in enumerate(offsets)}
    return msgspec.json.encode({topic: by_partition}).decode()


def _sink(
    name: str,
    data: Path,
    store: ManifestStore,
    dispatch: KafkaDispatch,
    on_step: Callable[[str], None],
) -> tuple[Committer[Packs] | Committer[SparkChunks], DriverSink | SparkSink]:
    """What commits, and what feeds it: in this process, or on the executors."""
    committer = partial(
        Committer, data=data, store=store, dispatch=dispatch, now_ms=wall_clock_ms, on_step=on_step
    )
    if name == "driver":
        driver: Committer[Packs] = committer(tables=DriverTables(data / "tables"))
        return driver, DriverSink(driver)
    spark: Committer[SparkChunks] = committer(tables=SparkTables(data / "tables"))
    return spark, SparkSink(spark)
