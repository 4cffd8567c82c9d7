import random

import pytest

from pipelines import commit, durable
from pipelines.dispatch import MemoryDispatch
from pipelines.driver_sink import collect
from pipelines.manifest import LogId, ManifestStore
from schemas.errors import (
    BrokerUnavailable,
    CheckpointDamaged,
    DeliveryError,
    Fenced,
    LogChanged,
)
from schemas.tables import TABLES
from tests.batches import Driver, actual, batch, expected
from tests.unit.pipelines.killing import (
    as_json,
    check_end,
    kill_at_lines,
    orders,
    orders_below,
    run_victim,
)

STEPS = [
    "before appends",
    *(f"after {name}" for name in TABLES),
    "before manifest",
    "after flush",
    "after manifest",
    "after dispatch",
]


@pytest.fixture
def driver(tmp_path):
    driver = Driver(tmp_path, "run1")
    driver.start()
    return driver


def marks(dispatch):
    return [mark for record in dispatch.records if "manifest" in (mark := as_json(record))]


# -- what a commit is -------------------------------------------------------------------------


def test_a_commit_puts_the_rows_of_a_batch_into_all_tables(driver, tmp_path):
    manifest = driver.commit((0, 0, 30), (1, 0, 20))
    assert manifest.next_offsets == [30, 20]
    assert actual(tmp_path) == expected([30, 20])
    assert {name: state.rows_total for name, state in manifest.tables.items()} == {
        name: len(rows) for name, rows in expected([30, 20]).items()
    }


def test_a_table_without_rows_gets_no_commit(driver):
    manifest = driver.commit((0, 0, 1))  # a record that no dead letter comes from
    assert manifest.tables["inbox"].version == 1
    assert manifest.tables["dead_letters"].version == 0
    assert manifest.tables["dead_letters"].commits == []


@pytest.mark.parametrize("seed", range(6))
def test_the_cuts_between_batches_do_not_matter(driver, tmp_path, seed):
    rng = random.Random(seed)
    position = [0, 0]
    while min(position) < 40:
        begin = [max(0, offset - rng.randrange(5)) for offset in position]  # overlaps
        position = [min(40, offset + rng.randrange(15)) for offset in position]
        driver.commit(*((p, begin[p], position[p]) for p in range(2)))
    assert actual(tmp_path) == expected([40, 40])


def test_a_batch_that_is_committed_already_changes_nothing(driver, tmp_path):
    first = driver.commit((0, 0, 20))
    sent = list(driver.dispatch.records)
    assert driver.commit((0, 5, 20)) is None
    assert driver.commit() is None
    assert driver.store.newest() == first
    assert driver.dispatch.records == sent
    assert actual(tmp_path) == expected([20, 0])


def test_counts_are_of_the_batch_and_totals_of_all(driver):
    driver.commit((0, 0, 4))
    manifest = driver.commit((0, 2, 11))
    assert manifest.counts == {"records": 7, "stored": 6, "quarantined": 1}
    assert manifest.totals == {"records": 11, "stored": 9, "quarantined": 2}
    assert manifest.ranges == [(0, 4, 11)]


def test_a_manifest_keeps_the_text_of_every_commit_since_the_one_before(driver, tmp_path):
    started = driver.store.read(1)
    second = driver.commit((0, 0, 30))
    for name in TABLES:
        log = tmp_path / "tables" / name / "_delta_log"
        kept = started.tables[name].commits + second.tables[name].commits
        assert [version for version, _ in kept] == [0, 1]
        for version, text in kept:
            assert (log / f"{version:020d}.json").read_text() == text


def test_each_manifest_names_the_hash_of_the_one_before(driver):
    driver.commit((0, 0, 3))
    driver.commit((0, 3, 6))
    for number in (2, 3):
        digest = driver.store.read_with_hash(number - 1)[1]
        assert driver.store.read(number).previous_hash == digest
    assert driver.store.read(1).previous_hash == ""


def test_the_tables_are_flushed_before_the_manifest_is_written(driver, monkeypatch):
    calls = []
    real_flush, real_create = commit.flush_filesystem, durable.create_file
    monkeypatch.setattr(
        commit, "flush_filesystem", lambda path: (calls.append("flush"), real_flush(path))
    )
    monkeypatch.setattr(
        "pipelines.manifest.create_file",
        lambda *args, **options: (calls.append("manifest"), real_create(*args, **options)),
    )
    monkeypatch.setattr(
        "pipelines.delta_log.create_file",
        lambda *args, **options: (calls.append("table"), real_create(*args, **options)),
    )
    driver.commit((0, 0, 2))
    assert calls[-2:] == ["flush", "manifest"]
    assert set(calls[:-2]) == {"table"}


def test_a_record_that_was_skipped_stops_the_commit_before_anything_is_written(driver, tmp_path):
    with pytest.raises(CheckpointDamaged, match="record 0 of partition 0 was skipped"):
        driver.commit((0, 1, 5))
    assert driver.store.newest().number == 1
    assert not list((tmp_path / "tables").rglob("part-*"))


def test_tables_are_summed_up_for_readers_now_and_then(driver, tmp_path, monkeypatch):
    monkeypatch.setattr(commit, "CHECKPOINT_INTERVAL", 3)
    for offset in range(7):
        driver.commit((0, offset, offset + 1))
    driver.committer.close()
    found = {path.name for path in (tmp_path / "tables" / "history" / "_delta_log").glob("*.parq*")}
    assert f"{3:020d}.checkpoint.parquet" in found
    assert actual(tmp_path) == expected([7, 0])


def test_old_manifests_are_pruned_only_after_a_checkpoint_of_every_table(
    driver, tmp_path, monkeypatch
):
    monkeypatch.setattr(commit, "PRUNE_INTERVAL", 4)
    monkeypatch.setattr(ManifestStore.prune, "__defaults__", (2,))
    for offset in range(4):
        driver.commit((0, offset, offset + 1))
    driver.committer.close()
    assert driver.store.numbers() == [3, 4, 5]
    for name in TABLES:
        assert list((tmp_path / "tables" / name / "_delta_log").glob("*.checkpoint.parquet"))


# -- orders and marks -------------------------------------------------------------------------


def test_orders_go_out_before_the_mark_that_commits_them(driver):
    driver.dispatch.records.clear()
    manifest = driver.commit((0, 0, 9))
    assert [as_json(record)["kind"] for record in driver.dispatch.records] == [
        *["order"] * 3,
        "committed",
    ]
    assert marks(driver.dispatch)[-1] == {
        "kind": "committed",
        "manifest": manifest.number,
        "touched": sorted(f"recipient {offset}" for offset in range(9)),
    }
    assert orders(driver.dispatch.records) == orders_below([9])


def test_a_mark_with_too_many_recipients_names_none(driver, monkeypatch):
    monkeypatch.setattr(commit, "TOUCHED_MAX", 5)
    driver.commit((0, 0, 6))
    assert marks(driver.dispatch)[-1]["touched"] is None


def test_no_order_is_lost_if_the_broker_is_away_after_the_manifest(driver, tmp_path):
    driver.dispatch.away = True
    with pytest.raises(BrokerUnavailable):
        driver.commit((0, 0, 9))
    assert driver.store.newest().number == 2
    assert driver.committer.in_office()
    driver.dispatch.away = False
    driver.start()
    assert orders(driver.dispatch.records) == orders_below([9])
    assert [mark["manifest"] for mark in marks(driver.dispatch)] == [1, 2, 3]
    assert actual(tmp_path) == expected([9, 0])


def test_a_start_sends_the_orders_of_the_manifest_before_it_writes_its_own(driver, tmp_path):
    driver.commit((0, 0, 9))
    dispatch = MemoryDispatch()
    dispatch.away = True
    with pytest.raises(BrokerUnavailable):
        Driver(tmp_path, "run2", dispatch=dispatch).start()
    assert driver.store.newest().number == 2  # else the next start would not find them
    dispatch.away = False
    Driver(tmp_path, "run2", dispatch=dispatch).start()
    assert orders(dispatch.records) == orders_below([9])
    assert [(mark["manifest"], mark["touched"]) for mark in marks(dispatch)] == [(2, None), (3, [])]


# -- start ------------------------------------------------------------------------------------


def test_the_first_start_makes_empty_tables_and_manifest_1(driver, tmp_path):
    started = driver.store.newest()
    assert (started.number, started.ranges, started.next_offsets) == (1, [], [0, 0])
    assert actual(tmp_path) == expected([0, 0])


def test_a_start_keeps_all_that_was_committed_under_a_new_owner(driver, tmp_path):
    before = driver.commit((0, 0, 30), (1, 0, 3))
    started = Driver(tmp_path, "run2").start()
    assert (started.number, started.owner) == (before.number + 1, "run2")
    assert (started.next_offsets, started.totals) == (before.next_offsets, before.totals)
    assert (started.ranges, started.counts, started.orders) == ([], {}, [])
    assert actual(tmp_path) == expected([30, 3])


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"log": LogId(cluster_id="cluster", topic_id="new")}, "topic new of cluster cluster"),
        ({"first_offsets": [0, 0, 0]}, "2 partitions, but the log now has 3"),
    ],
)
def test_another_log_is_refused(driver, fields, sentence):
    committer, recovered = (
        driver.committer,
        commit.Recovery(manifest=driver.store.newest(), manifest_hash="", versions={}),
    )
    arguments = {
        "owner": "run2",
        "core_version": 1,
        "log": driver.store.newest().log,
        "checkpoint": "c",
        "first_offsets": [0, 0],
    }
    with pytest.raises(LogChanged, match=sentence):
        committer.start(recovered, **arguments | fields)
    assert driver.store.newest().number == 1


def test_a_committer_that_was_not_started_is_not_in_office(tmp_path):
    assert not Driver(tmp_path, "run1").committer.in_office()


# -- a paused driver --------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
def test_a_paused_driver_that_wakes_after_another_took_over_harms_nothing(tmp_path, step):
    second = Driver(tmp_path, "run2")

    def take_over(reached):
        if reached == step and first.store.newest().owner != "run2":
            second.start()
            second.commit((0, second.committer.newest.next_offsets[0], 25), (1, 4, 9))

    first = Driver(tmp_path, "run1")
    first.start()
    first.commit((0, 0, 12), (1, 0, 4))
    first.committer._on_step = take_over
    if step in ("after manifest", "after dispatch"):
        first.commit((0, 12, 20))  # it was committed before the pause
    else:
        with pytest.raises(Fenced):
            first.commit((0, 12, 20))
    assert not first.committer.in_office()
    with pytest.raises(Fenced):
        first.commit((0, first.committer.newest.next_offsets[0], 26))

    _go_on(second, (0, 25, 40), (1, 9, 31))
    assert actual(tmp_path) == expected([40, 31])
    assert orders_below([40, 31]) <= orders(first.dispatch.records + second.dispatch.records)


def _go_on(driver, *ranges):
    """What the job does: if it met rows of another driver but is in office, it starts again."""
    try:
        driver.commit(*ranges)
    except Fenced:
        assert driver.committer.in_office()
        driver.start()
        driver.commit(*ranges)


def test_the_new_driver_meets_rows_that_the_old_one_added_after_its_recovery(tmp_path):
    first, second = Driver(tmp_path, "run1"), Driver(tmp_path, "run2")
    first.start()
    first.commit((0, 0, 5))
    recovery = commit.Recovery  # the old one wakes between the recovery and the start manifest
    recovered = _recover(tmp_path)
    assert isinstance(recovered, recovery)
    first.committer._on_step = _raise_at("before manifest")
    with pytest.raises(_Stopped):
        first.commit((0, 5, 12))
    _start(second, recovered)
    assert actual(tmp_path) == expected([5, 0])
    with pytest.raises(Fenced):
        second.commit((0, 5, 20))
    second.start()
    second.commit((0, 5, 20))
    assert actual(tmp_path) == expected([20, 0])


def test_of_two_drivers_that_start_at_once_one_is_fenced(tmp_path):
    first, second = Driver(tmp_path, "run1"), Driver(tmp_path, "run2")
    recovered = _recover(tmp_path), _recover(tmp_path)
    _start(first, recovered[0])
    with pytest.raises(Fenced):
        _start(second, recovered[1])
    assert first.committer.in_office()


def _recover(data):
    from pipelines.recovery import recover

    return recover(ManifestStore(data / "manifests"), data / "tables")


def _start(driver, recovery):
    return driver.committer.start(
        recovery,
        owner=driver.owner,
        core_version=1,
        log=LogId(cluster_id="cluster", topic_id="topic"),
        checkpoint="c",
        first_offsets=[0, 0],
    )


class _Stopped(Exception):
    """The point at which a test wants to look around."""


def _raise_at(name):
    def on_step(step):
        if step == name:
            raise _Stopped

    return on_step


@pytest.mark.parametrize("step", STEPS[:-2])
def test_a_driver_that_failed_half_way_cannot_go_on_without_recovery(driver, tmp_path, step):
    driver.committer._on_step = _raise_at(step)
    with pytest.raises(_Stopped):
        driver.commit((0, 0, 30))
    driver.committer._on_step = lambda step: None
    if step != "before appends":
        with pytest.raises(Fenced):
            driver.commit((0, 0, 30))
    driver.start()
    driver.commit((0, 0, 30))
    assert actual(tmp_path) == expected([30, 0])


# -- kill -9 ----------------------------------------------------------------------------------


def test_a_driver_killed_at_every_step_in_turn_loses_and_repeats_nothing(tmp_path):
    steps = ["start before manifest", "start after manifest", *STEPS]
    for seed, step in enumerate(steps):
        assert not run_victim(tmp_path, seed, 30 * (seed + 1), f"step {step}")
    goal = 30 * len(steps)
    assert run_victim(tmp_path, 99, goal)
    check_end(tmp_path, goal)


def test_a_driver_killed_at_any_line_loses_and_repeats_nothing(tmp_path):
    kill_at_lines(tmp_path, seed=1, kills=8)


def test_every_error_on_the_way_is_typed(driver, tmp_path):
    reports, packs = collect(batch((0, 0, 5)))
    (tmp_path / "manifests" / f"{2:012d}.json").write_bytes(b"")
    with pytest.raises(DeliveryError):
        driver.committer.commit(reports, packs)
