"""The fold over the log: records in, rows out.

`advance` is one call of one shard, as the query makes it. `fold_log` is the same fold over a whole
log in one process, without Spark, checkpoint or sink: the independent answer to what the tables
should hold.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pipelines.admit import admit
from pipelines.blob import Header, decode
from pipelines.effects import Dispatch, Effect, Quarantine, Record, Release, Store
from pipelines.inputs import Input
from pipelines.packs import OUTCOMES, Report, Row
from pipelines.rows import row_of
from pipelines.shard import CORE_VERSION, Shard, broken
from schemas.errors import DeliveryError
from schemas.records import RECORD_HEAD
from schemas.tables import TABLES

LogRecord = tuple[int, int, bytes]  # (offset, timestamp_ms, value)

_CODES = {name: code for code, name in enumerate(OUTCOMES)}
_FIRST = frozenset(OUTCOMES[1:6])
_NAMES = {table.code: name for name, table in TABLES.items()}


def shard_for(value: bytes, partition: int, shards: int, partitions: int) -> int:
    """The shard whose state a record meets; one that names no valid shard meets its partition's."""
    if len(value) < RECORD_HEAD:
        return partition
    shard = int.from_bytes(value[1:3], "big")
    return shard if shard < shards and shard % partitions == partition else partition


class Call(msgspec.Struct):
    """What came of one call of a shard: the rows by table code, and its report."""

    rows: dict[int, list[Row]]
    report: Report


def advance(
    header: Header, records: Iterable[LogRecord], *, shard_id: int, shards: int, partitions: int
) -> tuple[bytes, Call]:
    """Apply records in order of offset; the new state and what came of it."""
    shard = Shard(header)
    partition = shard_id % partitions
    rows: dict[int, list[Row]] = {}
    offsets: list[int] = []
    outcomes: list[int] = []
    orders: list[tuple[int, int, bytes]] = []
    touched: dict[str, None] = {}
    for offset, timestamp_ms, value in records:
        if offset <= header.last_offset:
            continue  # the seed of a rebuild has it already
        header.last_offset = offset
        effects = shard.step(timestamp_ms, _admit(value, shard_id, shards), value)
        offsets.append(offset)
        outcomes.append(_outcome(effects))
        for index, effect in enumerate(effects):
            if isinstance(effect, Dispatch):
                order = {**effect.order, "partition": partition, "offset": offset, "index": index}
                orders.append((offset, index, msgspec.json.encode(order)))
                continue
            if isinstance(effect, Store | Release) and effect.position is not None:
                touched[effect.recipient.hex()] = None
            code, row = row_of(
                effect,
                partition=partition,
                offset=offset,
                index=index,
                shard=shard_id,
                core_version=CORE_VERSION,
                policy_number=header.policy_number,
            )
            rows.setdefault(code, []).append(row)
    report = Report(
        shard=shard_id,
        partition=partition,
        offsets=offsets,
        outcomes=outcomes,
        orders=orders,
        wake_at_ms=shard.wake_at_ms(),
        time_ms=header.time_ms,
        policy_number=header.policy_number,
        core_version=CORE_VERSION,
        touched=list(touched),
    )
    return shard.save(), Call(rows=rows, report=report)


def fold_log(
    records: Iterable[tuple[int, int, int, bytes]], *, shards: int, partitions: int
) -> dict[str, list[Row]]:
    """Fold (partition, offset, timestamp_ms, value) from the first offset; every table's rows."""
    by_shard: dict[int, list[LogRecord]] = {}
    for partition, offset, timestamp_ms, value in records:
        shard_id = shard_for(value, partition, shards, partitions)
        by_shard.setdefault(shard_id, []).append((offset, timestamp_ms, value))
    tables: dict[str, list[Row]] = {name: [] for name in TABLES}
    for shard_id, log in sorted(by_shard.items()):
        log.sort(key=lambda record: record[0])
        _, call = advance(Header(), log, shard_id=shard_id, shards=shards, partitions=partitions)
        for code, rows in call.rows.items():
            tables[_NAMES[code]] += rows
    return tables


def load(data: bytes | None) -> Header:
    """A shard's header from its saved bytes, or a new one."""
    return Header() if data is None else decode(data)


def _admit(value: bytes, shard_id: int, shards: int) -> Input | DeliveryError:
    try:
        return admit(value, shard_id, shards)
    except DeliveryError as error:
        return error
    except Exception as error:  # our own bug costs this record, never the batch
        return broken(error, value)


def _outcome(effects: list[Effect]) -> int:
    """The record's first outcome: its own effects come after those of the timers before it."""
    for effect in reversed(effects):
        if isinstance(effect, Quarantine):
            return _CODES["quarantined"]
        if isinstance(effect, Record) and effect.kind in _FIRST:
            return _CODES[effect.kind]
    return 0
