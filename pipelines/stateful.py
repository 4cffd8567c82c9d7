"""The state function: Spark's rows to the fold and back. It holds no rule of its own.

It lives in a module that workers import by name, for coders cannot be pickled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pipelines.fold import Call, LogRecord, advance, load
from pipelines.packs import REPORT, chunks, encode_report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

STATE_SCHEMA = "version INT, blob BINARY"  # for ever: Spark allows no other change than a rename
OUTPUT_SCHEMA = "shard INT, table INT, pack BINARY"
STATE_VERSION = 1


def fold_query(source: DataFrame, *, shards: int, partitions: int, seeds: str) -> DataFrame:
    """The one stateful query; `source` has the columns shard, offset, time_ms and value."""
    function = partial(call, shards=shards, partitions=partitions, seeds=seeds)
    return source.groupBy("shard").applyInPandasWithState(
        function, OUTPUT_SCHEMA, STATE_SCHEMA, "append", "NoTimeout"
    )


def call(
    key: tuple[Any, ...],
    frames: Iterable[pd.DataFrame],
    state: GroupState,
    *,
    shards: int,
    partitions: int,
    seeds: str,
) -> Iterator[pd.DataFrame]:
    """Advance one shard by all its records of a batch. Ticks are records too."""
    shard_id = int(key[0])
    records: list[LogRecord] = []
    for frame in frames:
        records.extend(zip(frame["offset"], frame["time_ms"], frame["value"], strict=True))
    records.sort(key=lambda record: record[0])  # a shuffle keeps no order
    saved = bytes(state.get[1]) if state.exists else seed(seeds, shard_id)
    blob, done = advance(
        load(saved),
        ((int(offset), int(time_ms), bytes(value)) for offset, time_ms, value in records),
        shard_id=shard_id,
        shards=shards,
        partitions=partitions,
    )
    state.update((STATE_VERSION, blob))
    yield from _frames(shard_id, done)


def seed(seeds: str, shard_id: int) -> bytes | None:
    """The state a rebuild starts this shard from; None if it starts from nothing."""
    path = Path(seeds) / f"{shard_id}.blob"
    return path.read_bytes() if path.exists() else None


def _frames(shard_id: int, done: Call) -> Iterator[pd.DataFrame]:
    packs = [(REPORT, encode_report(done.report))]
    packs += [(code, pack) for code, rows in sorted(done.rows.items()) for pack in chunks(rows)]
    tables, values = zip(*packs, strict=True)
    yield pd.DataFrame({"shard": shard_id, "table": tables, "pack": values})
