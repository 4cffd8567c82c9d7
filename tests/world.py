"""One shard and its log: feed it records, read what came of each one as named rows.

world = World()
world.arrive(envelope(n=1)).outcome          # "stored"
world.tick(NOW_MS + 300_000).history         # rows of history as dicts

The state is saved and loaded between any two records, so that every test crosses a batch cut.
"""

import json
from dataclasses import dataclass

from pipelines.blob import decode_box
from pipelines.fold import advance, load
from pipelines.packs import OUTCOMES
from schemas.policy import Policy
from schemas.records import Kind, encode_policy, encode_record, encode_snapshot, encode_tick
from schemas.tables import TABLES, TABLES_BY_CODE
from tests.factories import NOW_MS

COLUMNS = {code: [column.name for column in t.packed] for code, t in TABLES_BY_CODE.items()}


@dataclass
class Answer:
    """What came of one call: `rows` by table code as they are packed, and the same with names."""

    rows: dict
    report: object

    def table(self, name):
        code = TABLES[name].code
        return [dict(zip(COLUMNS[code], row, strict=True)) for row in self.rows.get(code, [])]

    @property
    def history(self):
        return self.table("history")

    @property
    def inbox(self):
        return self.table("inbox")

    @property
    def dead_letters(self):
        return self.table("dead_letters")

    @property
    def quarantine(self):
        return self.table("quarantine")

    @property
    def snapshots(self):
        return self.table("snapshots")

    @property
    def kinds(self):
        return [row["kind"] for row in self.history]

    @property
    def orders(self):
        return [json.loads(order) for _, _, order in self.report.orders]

    @property
    def outcome(self):
        return OUTCOMES[self.report.outcomes[-1]]

    @property
    def reason(self):
        """Why the envelope was refused, or what was said of a signal."""
        return self.history[-1]["reason"]


class World:
    """Shard 0 of 1: all mailboxes are in it."""

    def __init__(self, policy=None, blob=None):
        self.blob = blob
        self.log = []
        self.now_ms = NOW_MS
        self._policy_number = 0
        if policy is not None:
            self.policy(policy)

    def value(self, value, at_ms=None):
        """One record as it lies in the log; time stands still unless told otherwise."""
        self.now_ms = self.now_ms if at_ms is None else at_ms
        self.log.append((len(self.log), self.now_ms, value))
        self.blob, call = fold(self.log[-1:], self.blob)
        return call

    def feed(self, kind, body, at_ms=None):
        return self.value(encode_record(kind, 0, body), at_ms)

    def arrive(self, data, at_ms=None):
        return self.feed(Kind.ENVELOPE, data, at_ms)

    def ack(self, data, at_ms=None):
        return self.feed(Kind.ACK, data, at_ms)

    def ack_batch(self, data, at_ms=None):
        return self.feed(Kind.ACK_BATCH, data, at_ms)

    def signal(self, data, at_ms=None):
        return self.feed(Kind.SIGNAL, data, at_ms)

    def tick(self, at_ms=None):
        return self.feed(Kind.TICK, encode_tick(self.now_ms if at_ms is None else at_ms), at_ms)

    def snapshot(self, round_number=1, at_ms=None):
        return self.feed(Kind.SNAPSHOT, encode_snapshot(round_number), at_ms)

    def policy(self, policy, number=None, at_ms=None):
        self._policy_number = self._policy_number + 1 if number is None else number
        body = policy.to_json() if isinstance(policy, Policy) else policy
        return self.feed(Kind.POLICY, encode_policy(self._policy_number, 1, body), at_ms)

    @property
    def header(self):
        return load(self.blob)

    def box(self, owner):
        """The mailbox as it is saved; None if the shard does not know it."""
        known = self.header.boxes.get(owner)
        return None if known is None else decode_box(bytes(known[1]))

    def pending(self):
        """Every message the shard answers for, as (recipient, sender, message_id)."""
        return pending(self.blob)

    def whole(self):
        """The final state and all rows, if the same log is folded in one call."""
        return fold(self.log)


def fold(records, blob=None):
    """Fold records onto a saved state: the new one, and the answer."""
    saved, call = advance(load(blob), records, shard_id=0, shards=1, partitions=1)
    return saved, Answer(rows=call.rows, report=call.report)


def pending(blob):
    return {
        (owner, key[:32], message_id)
        for owner, (_, raw) in load(blob).boxes.items()
        for key, lane in decode_box(bytes(raw)).lanes.items()
        for message_id in lane.pending
    }
