"""The log as an independent consumer sees it: what it still holds, up to a manifest's offsets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from farpost.conservation import MESSAGE_ID_SIZE, LogPart
from pipelines.kafka import translated
from schemas.errors import BrokerUnavailable, LogChanged
from schemas.records import RECORD_HEAD, Kind

SILENCE_S_MAX = 30  # so long without a record that must come, and we give up
_POLL_MS = 1_000
_POLL_RECORDS_MAX = 10_000
_ID = slice(RECORD_HEAD + 4, RECORD_HEAD + 4 + MESSAGE_ID_SIZE)
_NO_ID = bytes(MESSAGE_ID_SIZE)

LogRecord = tuple[int, int, int, bytes]  # partition, offset, timestamp_ms, value


class Consumer(Protocol):
    """What we need of kafka-python's consumer; partitions are its TopicPartition."""

    def assign(self, partitions: list[Any]) -> None: ...
    def seek(self, partition: Any, offset: int) -> None: ...
    def pause(self, *partitions: Any) -> None: ...
    def poll(self, *, timeout_ms: int, max_records: int) -> dict[Any, list[Any]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """What of the log is still there: from `starts` up to `ends`, both by partition."""

    starts: list[int]
    ends: list[int]


def retained(
    topic: str, begins: Mapping[int, int], ends: Mapping[int, int], next_offsets: Sequence[int]
) -> Retained:
    """The part of the log to read; LogChanged if it ends before the manifest does."""
    for partition, expected in enumerate(next_offsets):
        if ends.get(partition, 0) < expected:
            raise LogChanged(
                f"partition {partition} of {topic} ends at offset {ends.get(partition, 0):,}, but"
                f" the tables hold records up to {expected:,}: this is not the log they were made"
                " from, or its end was lost; restore the broker's data"
            )
    return Retained(
        starts=[min(begins[partition], end) for partition, end in enumerate(next_offsets)],
        ends=list(next_offsets),
    )


def read_log(consumer: Consumer, topic: str, span: Retained) -> Iterator[LogRecord]:
    """Every record of the span, in order of offset within a partition."""
    from kafka import TopicPartition

    missing = {
        TopicPartition(topic, number): end
        for number, (start, end) in enumerate(zip(span.starts, span.ends, strict=True))
        if start < end
    }
    consumer.assign(list(missing))
    for partition in missing:
        consumer.seek(partition, span.starts[partition.partition])
    heard_at = time.monotonic()
    while missing:
        with translated():
            batches = consumer.poll(timeout_ms=_POLL_MS, max_records=_POLL_RECORDS_MAX)
        if batches:
            heard_at = time.monotonic()
        elif time.monotonic() - heard_at > SILENCE_S_MAX:
            raise BrokerUnavailable(
                f"the broker sent nothing for {SILENCE_S_MAX} s although the log goes on:"
                " look at it with `farpost status`"
            )
        for partition, records in batches.items():
            end = missing.get(partition, 0)
            for record in records:
                if record.offset < end:
                    yield record.partition, record.offset, record.timestamp, record.value or b""
            if partition in missing and records and records[-1].offset + 1 >= end:
                del missing[partition]
                consumer.pause(partition)


def summarize(records: Iterable[LogRecord], span: Retained) -> tuple[list[LogPart], dict[int, int]]:
    """Kinds and ids for the check, and the latest time that each shard has seen."""
    kinds = [bytearray() for _ in span.ends]
    ids = [bytearray() for _ in span.ends]
    times_ms: dict[int, int] = {}
    for partition, _, timestamp_ms, value in records:
        kind = value[0] if value else 0
        kinds[partition].append(kind)
        message_id = value[_ID] if kind == Kind.ENVELOPE else _NO_ID
        ids[partition] += message_id.ljust(MESSAGE_ID_SIZE, b"\0")
        if len(value) >= RECORD_HEAD:
            shard = int.from_bytes(value[1:RECORD_HEAD])
            if timestamp_ms > times_ms.get(shard, 0):
                times_ms[shard] = timestamp_ms
    parts = [
        LogPart(
            partition=partition,
            start=start,
            end=end,
            kinds=bytes(kinds[partition]),
            ids=bytes(ids[partition]),
        )
        for partition, (start, end) in enumerate(zip(span.starts, span.ends, strict=True))
    ]
    return parts, times_ms
