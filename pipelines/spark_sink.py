"""The sink that lets executors write through delta-spark: slower, and not bound to one machine."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.delta_log import DeltaLog, read_actions, rows_added
from pipelines.durable import typed_disk_full
from pipelines.packs import REPORT, Report, decode_report
from pipelines.sinks import Appended, Target, is_taken, taken
from pipelines.unpack import Key, decode_keys, encode_keys, heads, number_rows, unpack
from schemas.tables import Table, spark_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipelines.commit import Committer
    from pipelines.manifest import Manifest

# Set for each batch, as `foreachBatch` hands out a session of its own.
SPARK_OPTIONS = {
    "spark.databricks.delta.snapshotPartitions": "1",
    # An append that meets another's shall fail and not move on to the next version.
    "spark.databricks.delta.maxCommitAttempts": "0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkChunks:
    """The rows of one table in a batch: the batch itself, and the keys that lie above the floor."""

    batch: DataFrame
    keys: list[Key]


class SparkTables:
    """Appends what executors hold; only keys and reports come to the driver."""

    def __init__(self, tables: Path) -> None:
        self._tables = tables
        self._last: dict[Path, os.stat_result] = {}  # the newest commit file of each table

    def append(self, table: Table, chunks: SparkChunks, target: Target) -> Appended | None:
        if not chunks.keys:
            return None
        log = DeltaLog(self._tables / table.name)
        if is_taken(log, target) or self._was_replaced(log, target):
            raise taken(table, target)
        token = f"{target.owner}/{target.manifest}"
        try:
            with typed_disk_full(log.table):
                self._write(table, chunks, target, token)
        except Exception as error:
            if is_taken(log, target) and not _is_ours(log, target, token):
                raise taken(table, target) from error
            raise
        # delta-spark may have put it at a later version if another one was first.
        if not is_taken(log, target) or not _is_ours(log, target, token):
            raise taken(table, target)
        text = log.text(target.version)
        rows = rows_added(read_actions(text.encode()))
        assert rows == len(chunks.keys), f"{rows} rows written, {len(chunks.keys)} expected"
        self._last[log.commit_path(target.version)] = log.commit_path(target.version).stat()
        return Appended(rows=rows, text=text)

    def _was_replaced(self, log: DeltaLog, target: Target) -> bool:
        """Whether the commit this run made before is another file now.

        On a plain file system delta-spark looks whether a version is free and then renames: a
        driver that was paused between the two replaces ours. A recovery puts it back.
        """
        path = log.commit_path(target.version - 1)
        known = self._last.pop(path, None)
        return known is not None and not os.path.samestat(known, path.stat())

    def _write(self, table: Table, chunks: SparkChunks, target: Target, token: str) -> None:
        numbers = number_rows(chunks.keys)  # also proves that no key is there twice
        function = partial(
            unpack,
            table=table.name,
            floors=list(target.floors),
            keys=encode_keys(numbers),
            manifest=target.manifest,
        )
        packs = chunks.batch.where(f"table = {table.code}").select("pack")
        (
            packs.mapInArrow(function, spark_ddl(table))
            .write.format("delta")
            .mode("append")
            .option("userMetadata", token)
            .option("compression", "zstd")
            .save(str(self._tables / table.name))
        )


def _is_ours(log: DeltaLog, target: Target, token: str) -> bool:
    actions = read_actions(log.commit_path(target.version).read_bytes())
    infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
    return any(info.get("userMetadata") == token for info in infos)


class SparkSink:
    """For `foreachBatch`: one action for reports and keys, then one append a table with rows."""

    def __init__(self, committer: Committer[SparkChunks]) -> None:
        self._committer = committer

    def write(self, batch: DataFrame, batch_id: int) -> tuple[Manifest | None, list[Report]]:
        """The manifest, or None if all of it was committed before; and what the shards said."""
        for name, value in SPARK_OPTIONS.items():
            batch.sparkSession.conf.set(name, value)
        batch.persist()
        try:
            reports, keys = self._heads(batch)
            chunks = {code: SparkChunks(batch=batch, keys=found) for code, found in keys.items()}
            return self._committer.commit(reports, chunks), reports
        finally:
            batch.unpersist()

    def _heads(self, batch: DataFrame) -> tuple[list[Report], dict[int, list[Key]]]:
        floors = self._committer.newest.next_offsets
        found = batch.select("table", "pack").mapInArrow(
            partial(heads, floors=floors), "table INT, pack BINARY"
        )
        reports: list[Report] = []
        keys: dict[int, list[Key]] = defaultdict(list)
        for row in found.toArrow().to_pylist():
            if row["table"] == REPORT:
                reports.append(decode_report(row["pack"]))
            else:
                keys[row["table"]] += decode_keys(row["pack"])
        return reports, keys
