"""From packed rows to Arrow, the same on the driver and on an executor.

Rows of records below the floor (the manifest's next offsets) were committed before and are
dropped: a replay may cut its batches anywhere. A row's number is its place by (partition, offset,
index) among the rows of its table in the manifest, whatever order and chunks they came in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, cast

import msgspec
import pyarrow as pa

from pipelines.packs import REPORT, Row, decode_rows
from schemas.tables import TABLES, Table

BATCH_BYTES = 16 << 20  # what is held at once in memory; Arrow's own limit is 2 GiB a column

Floors = Sequence[int]  # by partition: the first offset that is not committed yet
Key = tuple[int, int, int]  # partition, offset, index

_ARROW_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
}
key_of: Callable[[Row], Key] = itemgetter(0, 1, 2)
_keys_decoder = msgspec.msgpack.Decoder(list[Key])


def arrow_schema(table: Table) -> pa.Schema:
    return pa.schema(
        [
            pa.field(column.name, _ARROW_TYPES[column.type], nullable=column.nullable)
            for column in table.columns
        ]
    )


def keys_above(pack: bytes, floors: Floors) -> list[Key]:
    """The keys of the rows in a chunk that are not committed yet."""
    return list(map(key_of, _rows_above(pack, floors)))


def number_rows(keys: Iterable[Key]) -> dict[Key, int]:
    """The number of each row."""
    ordered = sorted(keys)
    numbers = {key: number for number, key in enumerate(ordered)}
    assert len(numbers) == len(ordered), "two rows of one table have the same key"
    return numbers


def encode_keys(keys: Iterable[Key]) -> bytes:
    return msgspec.msgpack.encode(list(keys))


def decode_keys(data: bytes) -> list[Key]:
    return _keys_decoder.decode(data)


def record_batches(
    table: Table,
    packs: Iterable[bytes],
    *,
    floors: Floors,
    numbers: Mapping[Key, int],
    manifest: int,
) -> Iterator[pa.RecordBatch]:
    """The rows above the floor with the two columns of the sink, about BATCH_BYTES at a time."""
    rows: list[Row] = []
    size = 0
    for pack in packs:
        rows += _rows_above(pack, floors)
        size += len(pack)
        if size >= BATCH_BYTES and rows:
            yield _record_batch(table, rows, numbers, manifest)
            rows, size = [], 0
    if rows:
        yield _record_batch(table, rows, numbers, manifest)


def _rows_above(pack: bytes, floors: Floors) -> list[Any]:
    return [row for row in cast(list[Any], decode_rows(pack)) if row[1] >= floors[row[0]]]


def _record_batch(
    table: Table, rows: list[Row], numbers: Mapping[Key, int], manifest: int
) -> pa.RecordBatch:
    rows.sort(key=key_of)
    columns = [
        *zip(*rows, strict=True),
        (manifest,) * len(rows),
        tuple(numbers[key] for key in map(key_of, rows)),
    ]
    schema = arrow_schema(table)
    arrays = [
        pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)
    ]
    return pa.record_batch(arrays, schema=schema)


# -- for executors: functions of `mapInArrow` -----------------------------------------------------


def heads(batches: Iterator[pa.RecordBatch], *, floors: Floors) -> Iterator[pa.RecordBatch]:
    """Reports as they are, and of each chunk only the keys above the floor."""
    for batch in batches:
        codes = batch.column("table")
        values = cast(list[bytes], batch.column("pack").to_pylist())
        packs = [
            pack if code == REPORT else encode_keys(keys_above(pack, floors))
            for code, pack in zip(codes.to_pylist(), values, strict=True)
        ]
        yield pa.record_batch([codes, pa.array(packs, pa.binary())], names=["table", "pack"])


def unpack(
    batches: Iterator[pa.RecordBatch], *, table: str, floors: Floors, keys: bytes, manifest: int
) -> Iterator[pa.RecordBatch]:
    """The rows of the chunks; `keys` are those of all rows of this table in the manifest."""
    yield from record_batches(
        TABLES[table],
        (value.as_py() for batch in batches for value in batch.column("pack")),
        floors=floors,
        numbers=number_rows(decode_keys(keys)),
        manifest=manifest,
    )
