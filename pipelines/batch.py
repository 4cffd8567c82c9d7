"""What a batch of shard calls adds to what is committed, from their reports alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.packs import OUTCOMES, Report
from schemas.errors import CheckpointDamaged

RECORDS = "records"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The part of a batch that is not committed yet."""

    next_offsets: list[int]
    ranges: list[tuple[int, int, int]]  # (partition, first offset, offset after the last)
    counts: dict[str, int]
    orders: list[str]
    touched: list[str]


def plan_batch(reports: Sequence[Report], floors: Sequence[int]) -> Batch | None:
    """None if nothing lies above the floors; CheckpointDamaged if a record was passed over."""
    offsets: dict[int, list[int]] = defaultdict(list)
    counts: Counter[str] = Counter()
    orders: list[tuple[int, int, int, bytes]] = []
    touched: set[str] = set()
    for report in reports:
        partition = report.partition
        floor = floors[partition]
        fresh = 0
        for offset, outcome in zip(report.offsets, report.outcomes, strict=True):
            if offset >= floor:
                offsets[partition].append(offset)
                counts[OUTCOMES[outcome]] += 1
                fresh += 1
        if fresh:
            touched.update(report.touched)
        orders += [
            (partition, offset, index, order)
            for offset, index, order in report.orders
            if offset >= floor
        ]
    if not offsets:
        return None
    ranges = [
        (partition, floors[partition], _end(partition, offsets[partition], floors[partition]))
        for partition in sorted(offsets)
    ]
    ends = {partition: end for partition, _, end in ranges}
    del counts[OUTCOMES[0]]
    return Batch(
        next_offsets=[ends.get(partition, floor) for partition, floor in enumerate(floors)],
        ranges=ranges,
        counts={RECORDS: sum(map(len, offsets.values())), **counts},
        orders=[order.decode() for *_, order in sorted(orders)],
        touched=sorted(touched),
    )


def _end(partition: int, offsets: list[int], floor: int) -> int:
    """The offset after the last, if all from the floor on are there exactly once."""
    for expected, offset in enumerate(sorted(offsets), start=floor):
        if offset != expected:
            what = "was skipped" if offset > expected else "was taken twice"
            raise CheckpointDamaged(
                f"record {min(offset, expected)} of partition {partition} {what} by the query:"
                " its checkpoint does not fit the tables; run `farpost rebuild`"
            )
    return floor + len(offsets)
