"""What one call of a shard hands to the sink, as bytes.

The query's output has three columns, `shard`, `table` and `pack`: few, because every column costs
at every call. Table 0 is the call's report; any other number is a chunk of rows of that table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

REPORT = 0
PACK_BYTES = 1 << 20  # a chunk is closed once it holds this much, so no single value grows huge

Row = list[object]  # values in the order of the table's columns, without those the sink adds

# The first outcome of a record, as `Report.outcomes` counts it; 0 is a record that is no envelope.
OUTCOMES = ("other", "stored", "held", "scheduled", "duplicate", "refused", "quarantined")


class Report(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What a shard tells the driver after each call; there is one even if no row was made."""

    shard: int
    partition: int
    offsets: list[int]  # every offset this call consumed, ascending
    outcomes: list[int]  # parallel to offsets, indexes into OUTCOMES
    orders: list[tuple[int, int, bytes]]  # (offset, index, JSON) for the topic `dispatch`
    wake_at_ms: int | None  # when the shard wants its next tick
    time_ms: int  # the shard's time after this call
    policy_number: int
    core_version: int
    touched: list[str]  # recipients with something new to fetch, a hint for who waits


_encoder = msgspec.msgpack.Encoder()
_report_decoder = msgspec.msgpack.Decoder(Report)
_rows_decoder = msgspec.msgpack.Decoder(list[list[object]])


def encode_report(report: Report) -> bytes:
    return _encoder.encode(report)


def decode_report(data: bytes) -> Report:
    return _report_decoder.decode(data)


def encode_rows(rows: list[Row]) -> bytes:
    return _encoder.encode(rows)


def decode_rows(data: bytes) -> list[Row]:
    return _rows_decoder.decode(data)


def chunks(rows: Iterable[Row]) -> Iterator[bytes]:
    """Pack rows into chunks of about PACK_BYTES; a larger row is a chunk of its own."""
    chunk: list[Row] = []
    size = 0
    for row in rows:
        weight = sum(len(value) for value in row if isinstance(value, bytes | str))
        if chunk and size + weight > PACK_BYTES:
            yield encode_rows(chunk)
            chunk, size = [], 0
        chunk.append(row)
        size += weight
    if chunk:
        yield encode_rows(chunk)
