"""The log as a stream: topic `inbound`, one row a record, keyed by the shard it meets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_log(
    spark: SparkSession,
    *,
    topic: str,
    options: Mapping[str, str],
    starting_offsets: str,
    offsets_max: int,
    shards: int,
    partitions: int,
) -> DataFrame:
    """Every record of the log from `starting_offsets` on; a lost record stops the query."""
    stream = (
        spark.readStream.format("kafka")
        .options(**options)
        .option("subscribe", topic)
        .option("startingOffsets", starting_offsets)
        .option("failOnDataLoss", "true")
        .option("maxOffsetsPerTrigger", str(offsets_max))
        .load()
    )
    return with_shards(stream, shards=shards, partitions=partitions)


def with_shards(stream: DataFrame, *, shards: int, partitions: int) -> DataFrame:
    """Add the shard as `fold.shard_for` has it, and keep the few columns the fold needs."""
    named = "CAST(conv(hex(substring(value, 2, 2)), 16, 10) AS INT)"
    shard = (
        f"CASE WHEN length(value) >= 3 AND {named} < {shards}"
        f" AND {named} % {partitions} = partition"
        f" THEN {named} ELSE partition END"
    )
    return stream.selectExpr(
        f"{shard} AS shard",
        "offset",
        "CAST(unix_millis(timestamp) AS LONG) AS time_ms",
        "coalesce(value, X'') AS value",
    )
