"""A made-up log whose fold is trivial: what a record becomes depends only on its place.

So a test can cut it into batches as it likes, lose some, repeat some, and knows what the tables
must hold in the end: `expected(next_offsets)`, compared with `actual(data)`.
"""

import msgspec
import pyarrow as pa

from pipelines.commit import Committer
from pipelines.dispatch import MemoryDispatch
from pipelines.driver_sink import DriverTables, collect
from pipelines.manifest import LogId, ManifestStore, arrow_dataset, open_tables
from pipelines.packs import Report, chunks, encode_report
from pipelines.recovery import recover
from schemas.tables import TABLES

LOG = LogId(cluster_id="cluster", topic_id="topic")
PARTITIONS = 2
SHARDS = 6
_EXPIRES_ON = ("2026-11-19", "2026-W47", "never")


def rows_of(partition, offset):
    """The rows of one record, by the name of their table."""
    quarantined = offset % 7 == 3
    counts = {
        "inbox": 0 if quarantined else 1,
        "history": 0 if quarantined else 1 + offset % 3,
        "dead_letters": int(offset % 11 == 5),
        "quarantine": int(quarantined),
        "snapshots": int(offset % 13 == 0),
    }
    return {
        name: [_row(TABLES[name], partition, offset, index) for index in range(count)]
        for name, count in counts.items()
    }


def _row(table, partition, offset, index):
    return [partition, offset, index] + [
        _value(column, partition, offset, index) for column in table.packed[3:]
    ]


def _value(column, partition, offset, index):
    place = partition * 1_000_000 + offset * 100 + index
    if column.name == "expires_on":
        return _EXPIRES_ON[offset % 3]
    if place % 5 == 4:
        return None
    match column.type:
        case "string":
            return f"{column.name} {place}"
        case "binary":
            return place.to_bytes(8, "big") * 4
        case "boolean":
            return bool(place % 2)
        case _:
            return place


def order_of(partition, offset):
    """The order that one record makes, or none."""
    if offset % 4:
        return None
    return msgspec.json.encode({"kind": "order", "partition": partition, "offset": offset})


def batch(*ranges):
    """Output of the query for ranges (partition, first offset, offset after the last)."""
    calls = {}
    for partition, first, last in ranges:
        for offset in range(first, last):
            shard = partition + PARTITIONS * (offset % (SHARDS // PARTITIONS))
            calls.setdefault((shard, partition), []).append(offset)
    codes, packs = [], []
    for (shard, partition), offsets in calls.items():
        for name, table in TABLES.items():
            rows = [row for offset in offsets for row in rows_of(partition, offset)[name]]
            for chunk in chunks(rows):
                codes.append(table.code)
                packs.append(chunk)
        codes.append(0)
        packs.append(encode_report(_report(shard, partition, offsets)))
    return pa.table({"table": pa.array(codes, pa.int32()), "pack": pa.array(packs, pa.binary())})


def _report(shard, partition, offsets):
    orders = [(offset, 0, order_of(partition, offset)) for offset in offsets]
    return Report(
        shard=shard,
        partition=partition,
        offsets=offsets,
        outcomes=[6 if offset % 7 == 3 else 1 for offset in offsets],
        orders=[order for order in orders if order[2] is not None],
        wake_at_ms=None,
        time_ms=1,
        policy_number=1,
        core_version=1,
        touched=[f"recipient {offset}" for offset in offsets],
    )


def expected(next_offsets):
    """What the tables must hold once all records below these offsets are committed."""
    found = {name: [] for name in TABLES}
    for partition, last in enumerate(next_offsets):
        for offset in range(last):
            for name, rows in rows_of(partition, offset).items():
                found[name] += rows
    return {name: sorted(rows, key=_key) for name, rows in found.items()}


def actual(data):
    """What the tables hold at the newest manifest; checks the columns of the sink on the way."""
    manifest = ManifestStore(data / "manifests").newest()
    return {name: rows_in(table, name) for name, table in open_tables(data, manifest).items()}


def rows_in(delta_table, name):
    columns = [column.name for column in TABLES[name].columns]
    found = arrow_dataset(delta_table).to_table(columns).to_pylist()
    rows = sorted(([row[column] for column in columns] for row in found), key=_key)
    check_numbers(rows)
    return [row[:-2] for row in rows]


def check_numbers(rows):
    """Within a manifest rows are numbered from 0 without a hole, in the order of their keys."""
    numbers = {}
    for row in rows:
        manifest, number = row[-2:]
        assert number == numbers.get(manifest, 0)
        numbers[manifest] = number + 1


def _key(row):
    return row[:3]


class Driver:
    """One run of a driver on a data directory, with a committer that works like the real one."""

    def __init__(self, data, owner, *, dispatch=None, on_step=lambda step: None, tables=None):
        self.data = data
        self.owner = owner
        self.store = ManifestStore(data / "manifests")
        self.dispatch = dispatch or MemoryDispatch()
        self.notes = []
        self.committer = Committer(
            data=data,
            store=self.store,
            tables=tables or DriverTables(data / "tables"),
            dispatch=self.dispatch,
            now_ms=lambda: 1_800_000_000_000,
            on_step=on_step,
        )

    def start(self):
        recovery = recover(self.store, self.data / "tables")
        self.notes = recovery.notes
        return self.committer.start(
            recovery,
            owner=self.owner,
            core_version=1,
            log=LOG,
            checkpoint="checkpoint",
            first_offsets=[0] * PARTITIONS,
        )

    def commit(self, *ranges):
        return self.committer.commit(*collect(batch(*ranges)))
