import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.checkpoint import Seed, begin, distrust, prune
from schemas.errors import StateDamaged

TOPIC = "inbound"


def laid_out(spark, *, committed=None, planned=None, topic=TOPIC):
    """A checkpoint as Spark writes it: batches `committed`, and perhaps one more `planned`."""
    (spark / "commits").mkdir(parents=True)
    (spark / "offsets").mkdir()
    (spark / "metadata").write_text('{"id":"x"}')
    batches = {**(committed or {}), **(planned or {})}
    for batch, offsets in batches.items():
        lines = ["v1", '{"batchWatermarkMs":0}', json.dumps({topic: offsets})]
        (spark / "offsets" / str(batch)).write_text("\n".join(lines))
        if batch in (committed or {}):
            (spark / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    (spark / "commits" / ".0.crc").write_bytes(b"")
    return spark


def test_no_checkpoint_is_not_trusted(tmp_path):
    assert distrust(tmp_path, TOPIC, [0], [0]) == "there is no checkpoint"


def test_a_checkpoint_that_committed_nothing_yet_stands_at_zero(tmp_path):
    (tmp_path / "metadata").write_text("{}")
    assert distrust(tmp_path, TOPIC, [0, 0], [0, 0]) is None


@pytest.mark.parametrize(
    ("starts", "limits", "reason"),
    [
        ([0, 0], [9, 9], None),
        ([7, 8], [7, 8], None),
        ([8, 0], [9, 9], "at 7 in partition 0, the log begins later"),
        ([0, 0], [9, 7], "at 8 in partition 1, beyond the manifest"),
    ],
)
def test_a_checkpoint_must_lie_between_the_log_and_the_manifest(tmp_path, starts, limits, reason):
    spark = laid_out(tmp_path / "spark", committed={3: {"0": 7, "1": 8}})
    answer = distrust(spark, TOPIC, starts, limits)
    assert answer is reason is None or reason in answer


def test_the_newest_committed_batch_counts_and_not_the_planned_one(tmp_path):
    spark = laid_out(
        tmp_path / "spark", committed={9: {"0": 5}, 10: {"0": 6}}, planned={11: {"0": 99}}
    )
    assert distrust(spark, TOPIC, [0], [6]) is None
    assert "at 6" in distrust(spark, TOPIC, [0], [5])


@pytest.mark.parametrize("name", ["metadata", "commits/2", "offsets/2", "offsets/1"])
def test_an_emptied_file_is_found_out(tmp_path, name):
    spark = laid_out(tmp_path / "spark", committed={1: {"0": 1}, 2: {"0": 2}})
    (spark / name).write_bytes(b"")
    assert f"{name} is empty" in distrust(spark, TOPIC, [0], [9])


@pytest.mark.parametrize(
    "content", [b"v2\n{}\n{}", b"v1", b"\n", b"v1\n{}\n[]", b"\xff\xff", b'v1\n{}\n{"a":{}}']
)
def test_offsets_that_cannot_be_read_are_found_out(tmp_path, content):
    spark = laid_out(tmp_path / "spark", committed={1: {"0": 1}})
    (spark / "offsets" / "1").write_bytes(content)
    assert "cannot be read" in distrust(spark, TOPIC, [0], [9])


def test_missing_offsets_are_found_out(tmp_path):
    spark = laid_out(tmp_path / "spark", committed={1: {"0": 1}})
    (spark / "offsets" / "1").unlink()
    assert "FileNotFoundError" in distrust(spark, TOPIC, [0], [9])


def test_a_checkpoint_of_another_topic_is_found_out(tmp_path):
    spark = laid_out(tmp_path / "spark", committed={1: {"0": 1}}, topic="other")
    assert "KeyError" in distrust(spark, TOPIC, [0], [9])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(min_size=1, max_size=60))
def test_hostile_bytes_are_never_trusted_and_never_raise(tmp_path, content):
    spark = tmp_path / "spark"
    if not spark.exists():
        laid_out(spark, committed={1: {"0": 1}})
    (spark / "offsets" / "1").write_bytes(content)
    assert distrust(spark, TOPIC, [0], [9]) is not None


def seeded(*offsets):
    return {
        shard: Seed(shard=shard, last_offset=offset, blob=b"state %d" % shard)
        for shard, offset in enumerate(offsets)
        if offset is not None
    }


def test_a_new_checkpoint_reads_from_the_oldest_seed_of_each_partition(tmp_path):
    start = begin(
        tmp_path,
        "new",
        seeds=seeded(10, 21, 12, 19),
        log_starts=[3, 20],
        shards=4,
        reason="torn",
    )
    assert (start.name, start.offsets, start.reason) == ("new", [11, 20], "torn")
    seeds = tmp_path / "new" / "seeds"
    assert sorted(path.name for path in seeds.iterdir()) == [f"{n}.blob" for n in range(4)]
    assert (seeds / "2.blob").read_bytes() == b"state 2"


def test_a_shard_without_a_seed_needs_the_whole_log(tmp_path):
    start = begin(tmp_path, "new", seeds=seeded(10, None), log_starts=[0], shards=2, reason="lost")
    assert start.offsets == [0]


@pytest.mark.parametrize("offsets", [(10, None), (10, 3)])
def test_a_log_that_begins_after_the_seeds_stops_the_start(tmp_path, offsets):
    with pytest.raises(StateDamaged, match=r"begins at 5, .* reach only to .* backup"):
        begin(tmp_path, "new", seeds=seeded(*offsets), log_starts=[5], shards=2, reason="lost")
    assert list(tmp_path.iterdir()) == []


def test_pruning_keeps_the_one_in_use(tmp_path):
    for name in ("one", "two", "three"):
        begin(tmp_path, name, seeds=seeded(1), log_starts=[0], shards=1, reason="")
    prune(tmp_path, "two")
    assert [path.name for path in tmp_path.iterdir()] == ["two"]


def test_pruning_where_nothing_is_does_nothing(tmp_path):
    prune(tmp_path / "none", "one")
    assert not (tmp_path / "none").exists()
