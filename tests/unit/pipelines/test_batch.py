import pytest

from pipelines.batch import plan_batch
from pipelines.packs import Report
from schemas.errors import CheckpointDamaged


def report(partition, offsets, *, shard=0, outcomes=None, orders=(), touched=()):
    return Report(
        shard=shard,
        partition=partition,
        offsets=offsets,
        outcomes=outcomes or [0] * len(offsets),
        orders=list(orders),
        wake_at_ms=None,
        time_ms=0,
        policy_number=1,
        core_version=1,
        touched=list(touched),
    )


def test_the_end_is_found_from_the_reports_of_all_shards():
    batch = plan_batch([report(0, [0, 3]), report(0, [1, 2], shard=2), report(1, [5])], [0, 5])
    assert batch.next_offsets == [4, 6]
    assert batch.ranges == [(0, 0, 4), (1, 5, 6)]


def test_a_partition_without_records_stays_where_it_was():
    batch = plan_batch([report(1, [9])], [7, 9])
    assert batch.next_offsets == [7, 10]
    assert batch.ranges == [(1, 9, 10)]


def test_first_outcomes_are_counted_and_other_records_only_as_records():
    batch = plan_batch([report(0, [0, 1, 2, 3], outcomes=[1, 0, 1, 6])], [0])
    assert batch.counts == {"records": 4, "stored": 2, "quarantined": 1}


def test_what_lies_below_the_floor_counts_for_nothing():
    orders = [(1, 0, b"old"), (2, 0, b"new")]
    batch = plan_batch([report(0, [1, 2], outcomes=[1, 2], orders=orders)], [2])
    assert batch.counts == {"records": 1, "held": 1}
    assert batch.orders == ["new"]
    assert batch.ranges == [(0, 2, 3)]


def test_a_batch_wholly_below_the_floor_is_nothing():
    assert plan_batch([report(0, [1, 2]), report(1, [])], [3, 0]) is None
    assert plan_batch([], [3]) is None


def test_only_shards_with_something_new_touch_recipients():
    old = report(0, [1], touched=["a"])
    new = report(0, [2], touched=["c", "b", "c"], shard=2)
    assert plan_batch([new, old], [2]).touched == ["b", "c"]


def test_orders_are_in_the_order_of_the_log():
    first = report(0, [1], orders=[(1, 0, b"c")])
    second = report(0, [0], shard=2, orders=[(0, 1, b"b"), (0, 0, b"a")])
    assert plan_batch([first, second], [0]).orders == ["a", "b", "c"]


def test_a_record_that_no_shard_took_stops_the_job():
    with pytest.raises(CheckpointDamaged, match="record 1 of partition 0 was skipped"):
        plan_batch([report(0, [0, 2])], [0])


def test_a_batch_that_begins_above_the_floor_stops_the_job():
    with pytest.raises(CheckpointDamaged, match="record 4 of partition 0 was skipped"):
        plan_batch([report(0, [5])], [4])


def test_a_record_that_two_shards_took_stops_the_job():
    with pytest.raises(CheckpointDamaged, match="record 1 of partition 0 was taken twice"):
        plan_batch([report(0, [0, 1]), report(0, [1, 2], shard=2)], [0])
