"""A hub without Spark or broker: a log in memory, folded into real Delta tables with a manifest.

hub = Hub(tmp_path)
hub.envelope(n=1)
hub.commit()          # or hub.commit(change=lambda tables: tables["inbox"].pop())
"""

from collections import Counter, namedtuple

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from pipelines.fold import fold_log
from pipelines.manifest import LogId, Manifest, ManifestStore, TableState
from pipelines.packs import OUTCOMES
from schemas.records import Kind, encode_record, encode_tick, route, shard_of
from schemas.signals import SignalKind
from schemas.tables import TABLES
from tests import factories
from tests.factories import DAY_S, NOW_MS, NOW_S, address, device

SHARDS, PARTITIONS = 4, 2
TOPIC = "inbound"

_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
}
KafkaRecord = namedtuple("KafkaRecord", "partition offset timestamp value")


class Hub:
    """`data` is its data directory, `log` the records in it as `fold_log` takes them."""

    def __init__(self, data):
        self.data = data
        self.log = []
        self.now_ms = NOW_MS
        self._next = [0] * PARTITIONS
        self._committed = [0] * PARTITIONS
        self._number = 0
        self._hash = ""
        self.rows = {}

    # -- the log ----------------------------------------------------------------------------

    def append(self, kind, body):
        partition, value = route(kind, body, SHARDS, PARTITIONS)
        return self.append_value(partition, value)

    def append_value(self, partition, value):
        offset = self._next[partition]
        self.log.append((partition, offset, self.now_ms, value))
        self._next[partition] = offset + 1
        self.now_ms += 1_000
        return partition, offset

    def envelope(self, **fields):
        data = factories.envelope(**fields)
        self.append(Kind.ENVELOPE, data)
        return data

    def ack(self, data, **fields):
        return self.append(Kind.ACK, factories.ack(data, **fields))

    def signal(self, data, **fields):
        return self.append(Kind.SIGNAL, factories.signal(data, **fields))

    def lane_signal(self, **fields):
        return self.append(Kind.SIGNAL, factories.lane_signal(**fields))

    def tick(self, *, recipient=None, after_ms=0):
        """Let time pass for one mailbox's shard."""
        self.now_ms += after_ms
        shard = shard_of(address(recipient or device(2)), SHARDS)
        value = encode_record(Kind.TICK, shard, encode_tick(self.now_ms))
        return self.append_value(shard % PARTITIONS, value)

    def be_busy(self):
        """A bit of everything: order, gap, late ones, duplicate, collision, acks, expiry."""
        first = self.envelope(n=1)
        self.envelope(n=2)
        self.envelope(n=5)
        self.envelope(n=1)
        self.envelope(n=1, payload=b"other")
        self.ack(first)
        self.signal(self.envelope(n=7, session=2, counter=1))
        taken = self.envelope(n=8, session=3, counter=1)
        self.signal(taken, kind=SignalKind.TAKEN)
        self.append_value(1, encode_record(Kind.ENVELOPE, 1, b"junk"))
        self.append_value(0, b"")
        self.tick(after_ms=400_000)
        self.envelope(n=3)
        self.envelope(n=20, counter=0, recipient=device(3), expires_at_s=NOW_S + 4_000)
        self.envelope(n=21, counter=0, recipient=device(3), not_before_s=NOW_S + DAY_S)
        self.tick(recipient=device(3), after_ms=4_000_000)
        late = self.envelope(n=30, session=4, counter=1, expires_at_s=self.now_ms // 1000 + 4_000)
        self.tick(after_ms=5_000_000)
        self.ack(late)

    # -- the tables -------------------------------------------------------------------------

    def commit(self, change=None, **fields):
        """Append what the fold gives and was not there yet; `change` may spoil the rows first."""
        folded = fold_log(self.log, shards=SHARDS, partitions=PARTITIONS)
        new = {
            name: [row for row in rows if row[1] >= self._committed[row[0]]]
            for name, rows in folded.items()
        }
        totals = self._totals(folded)
        if change is not None:
            change(new)
        self._number += 1
        for name, rows in new.items():
            self._append(name, rows)
        ranges = [
            (p, low, high)
            for p, (low, high) in enumerate(zip(self._committed, self._next, strict=True))
            if low < high
        ]
        self._committed = list(self._next)
        manifest = Manifest(
            **{
                "number": self._number,
                "owner": "test",
                "created_at_ms": self.now_ms,
                "core_version": 1,
                "log": LogId(cluster_id="cluster", topic_id="topic"),
                "checkpoint": "none",
                "next_offsets": list(self._next),
                "ranges": ranges,
                "counts": {},
                "totals": totals,
                "tables": {name: self._state(name) for name in TABLES},
                "orders": [],
                "previous_hash": self._hash,
            }
            | fields
        )
        self._hash = ManifestStore(self.data / "manifests").write(manifest)
        return manifest

    def append_uncommitted(self, name, row):
        """Rows above the manifest's version: nobody may see them."""
        self._append(name, [row])

    def _append(self, name, rows):
        columns = TABLES[name].columns
        schema = pa.schema([pa.field(c.name, _TYPES[c.type]) for c in columns])
        full = [[*row, self._number, at] for at, row in enumerate(rows)]
        values = [list(column) for column in zip(*full, strict=True)] or [[] for _ in columns]
        write_deltalake(
            str(self.data / "tables" / name), pa.table(values, schema=schema), mode="append"
        )
        self.rows[name] = self.rows.get(name, 0) + len(rows)

    def _state(self, name):
        version = DeltaTable(str(self.data / "tables" / name)).version()
        return TableState(version=version, rows_total=self.rows[name], commits=[])

    def _totals(self, folded):
        at = TABLES["history"].columns
        kind = [column.name for column in at].index("kind")
        totals = Counter(row[kind] for row in folded["history"] if row[kind] in OUTCOMES)
        totals["quarantined"] = len(folded["quarantine"])
        totals["records"] = sum(self._next)
        return dict(totals)


class FakeConsumer:
    """The consumer of kafka-python over a list, in small polls."""

    def __init__(self, log, poll_size=7):
        self._log = log
        self._poll_size = poll_size
        self._places = {}

    def assign(self, partitions):
        self._places = dict.fromkeys(partitions, 0)

    def seek(self, partition, offset):
        self._places[partition] = offset

    def pause(self, *partitions):
        for partition in partitions:
            del self._places[partition]

    def poll(self, *, timeout_ms, max_records):
        found = {}
        for place, start in self._places.items():
            records = [
                KafkaRecord(*record)
                for record in sorted(self._log)
                if record[0] == place.partition and record[1] >= start
            ][: self._poll_size]
            if records:
                found[place] = records
                self._places[place] = records[-1].offset + 1
        return found

    def close(self):
        self._places = {}
