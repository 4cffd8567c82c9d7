import threading

import msgspec
import pytest

from pipelines.checkpoint import Seed
from pipelines.manifest import LogId, Manifest
from pipelines.marker import Marker
from pipelines.packs import Report
from pipelines.runner import TRIES_MAX, Runner
from pipelines.shard import CORE_VERSION
from pipelines.status import Status
from schemas.errors import (
    BrokerUnavailable,
    CheckpointDamaged,
    CoreVersionChanged,
    DiskFull,
    Fenced,
    StartFailed,
    TableDamaged,
)

MANIFEST = Manifest(
    number=5,
    owner="before",
    created_at_ms=0,
    core_version=CORE_VERSION,
    log=LogId(cluster_id="c", topic_id="t"),
    checkpoint="old",
    next_offsets=[10],
    ranges=[],
    counts={},
    totals={},
    tables={},
    orders=[],
    previous_hash="",
)


class FakeClock:
    def __init__(self):
        self.heard_reports = []
        self.running = False

    def start(self):
        self.running = True

    def stop(self):
        self.running = False

    def heard(self, reports):
        self.heard_reports += reports

    def ask_snapshots(self):
        return {0: 20, 1: 21}


class FakeQuery:
    def __init__(self, error=None):
        self.isActive = error is None
        self._error = error

    def exception(self):
        return self._error

    def stop(self):
        self.isActive = False


class FakeHub:
    """Runs the scripted queries one after the other; the last one stays."""

    owner = "me"
    topic = "inbound"
    shards = 2

    def __init__(self, tmp_path, stop, *, manifest=MANIFEST, script=()):
        self.checkpoints = tmp_path / "checkpoints"
        self.manifest = manifest
        self.script = list(script)
        self.starts = []
        self.away = 0
        self.office = True
        self._stop = stop

    def log_starts(self):
        if self.away:
            self.away -= 1
            raise BrokerUnavailable("away")
        return [0]

    def recover(self):
        return self.manifest

    def seeds(self, manifest):
        return {0: Seed(shard=0, last_offset=7, blob=b"seed")} if manifest else {}

    def take_office(self, name):
        return MANIFEST

    def in_office(self):
        return self.office

    def start_query(self, start, on_batch):
        self.starts.append(start)
        if not self.script:
            self.on_batch = on_batch
            on_batch(None, 0)
            self._stop.set()
            return FakeQuery()
        failure = self.script.pop(0)
        if isinstance(failure, str):
            return FakeQuery(failure)
        self.failure = failure
        with pytest.raises(type(failure)):
            on_batch(None, 0)
        return FakeQuery(str(failure))

    def commit(self, batch, batch_id):
        if getattr(self, "failure", None) is not None:
            failure, self.failure = self.failure, None
            raise failure
        reports = [_report(0, 20), _report(1, 21)]
        return msgspec.structs.replace(MANIFEST, number=6), reports


def _report(shard, offset):
    return Report(
        shard=shard,
        partition=0,
        offsets=[offset],
        outcomes=[0],
        orders=[],
        wake_at_ms=None,
        time_ms=0,
        policy_number=3,
        core_version=CORE_VERSION,
        touched=[],
    )


@pytest.fixture
def rig(tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.runner.TRY_AGAIN_S", 0.0)
    monkeypatch.setattr("pipelines.runner.LOOK_S", 0.001)
    monkeypatch.setattr("pipelines.runner.SNAPSHOT_WAIT_S", 1.0)
    stop = threading.Event()

    def make(*, take_over=False, boot_id="boot", **options):
        hub = FakeHub(tmp_path, stop, **options)
        clock, status, marker = FakeClock(), Status(), Marker(tmp_path, boot_id=boot_id)
        runner = Runner(hub, clock, marker, status, take_over=take_over)
        return hub, clock, marker, status, lambda: runner.run(stop)

    return make


def good_checkpoint(tmp_path, offset=10):
    spark = tmp_path / "checkpoints" / "old" / "spark"
    for name in ("offsets", "commits"):
        (spark / name).mkdir(parents=True)
    (spark / "metadata").write_text("{}")
    (spark / "offsets" / "3").write_text(f'v1\n{{}}\n{{"inbound":{{"0":{offset}}}}}')
    (spark / "commits" / "3").write_text("v1\n{}")


def test_a_good_checkpoint_goes_on(rig, tmp_path):
    good_checkpoint(tmp_path)
    hub, clock, marker, status, run = rig()
    run()
    assert [(start.name, start.offsets) for start in hub.starts] == [("old", None)]
    assert not clock.running
    assert [report.shard for report in clock.heard_reports] == [0, 1]
    assert marker.last().exact
    said = msgspec.json.decode(status.to_json())
    assert (said["manifest"], said["policy_number"], said["ready"]) == (6, 3, False)


def test_a_checkpoint_beyond_the_manifest_is_made_again_from_snapshots(rig, tmp_path):
    good_checkpoint(tmp_path, offset=11)
    hub, _, _, _, run = rig()
    run()
    (start,) = hub.starts
    assert start.offsets == [0]  # shard 1 has no snapshot
    assert (tmp_path / "checkpoints" / start.name / "seeds" / "0.blob").read_bytes() == b"seed"
    assert not (tmp_path / "checkpoints" / "old").exists()


def test_without_a_manifest_there_is_a_new_checkpoint(rig):
    hub, _, _, _, run = rig(manifest=None)
    run()
    assert hub.starts[0].reason == "is new, because there is no manifest yet"


def test_a_power_cut_makes_a_good_checkpoint_doubtful(rig, tmp_path):
    good_checkpoint(tmp_path)
    Marker(tmp_path, boot_id="another").started()
    hub, _, _, _, run = rig()
    run()
    assert "machine went down" in hub.starts[0].reason


def test_a_driver_that_takes_over_leaves_the_others_checkpoint_alone(rig, tmp_path):
    good_checkpoint(tmp_path)
    hub, _, _, _, run = rig(take_over=True)
    run()
    assert hub.starts[0].name != "old"


def test_a_broker_that_is_away_is_waited_for(rig, tmp_path):
    good_checkpoint(tmp_path)
    hub, _, _, _, run = rig()
    hub.away = 3
    run()
    assert len(hub.starts) == 1


def test_an_end_is_tried_again_first_as_it_was_then_with_a_new_checkpoint(rig, tmp_path):
    good_checkpoint(tmp_path)
    hub, _, _, _, run = rig(script=["some Exception", "some Exception"])
    run()
    assert [start.name == "old" for start in hub.starts] == [True, True, False]


@pytest.mark.parametrize(
    "end", ["StateDamaged: its checksum is wrong", CheckpointDamaged("skipped")]
)
def test_damaged_state_is_made_again_at_once(rig, tmp_path, end):
    good_checkpoint(tmp_path)
    hub, _, _, _, run = rig(script=[end])
    run()
    assert [start.name == "old" for start in hub.starts] == [True, False]


def test_after_some_tries_a_person_must_act(rig, tmp_path):
    good_checkpoint(tmp_path)
    hub, clock, marker, _, run = rig(script=["java.lang.SomeException: no"] * 10)
    with pytest.raises(StartFailed, match=r"SomeException: no\. The log and the tables are as"):
        run()
    assert len(hub.starts) == TRIES_MAX
    assert not clock.running
    assert not marker.last().clean


def test_a_fenced_driver_ends(rig, tmp_path):
    good_checkpoint(tmp_path)
    hub, _, _, _, run = rig(script=[Fenced("another driver")])
    hub.office = False
    with pytest.raises(Fenced):
        run()
    assert len(hub.starts) == 1


def test_a_conflict_with_leftovers_of_another_is_recovered_from(rig, tmp_path):
    good_checkpoint(tmp_path)
    hub, _, _, _, run = rig(script=[Fenced("version 3 is taken")])
    run()
    assert len(hub.starts) == 2


def test_what_only_a_person_can_mend_ends_the_run(rig, tmp_path):
    good_checkpoint(tmp_path)
    _, _, _, _, run = rig(script=[TableDamaged("file x is missing")])
    with pytest.raises(TableDamaged):
        run()


def test_a_full_disk_is_waited_for_and_its_checkpoint_not_blamed(rig, tmp_path):
    good_checkpoint(tmp_path)
    spark_says = "java.io.IOException: No space left on device"
    hub, _, _, _, run = rig(script=[DiskFull("no space"), spark_says] * TRIES_MAX)
    run()
    assert len(hub.starts) == 2 * TRIES_MAX + 1
    assert {start.reason for start in hub.starts} == {"goes on"}


def test_a_driver_that_was_taken_over_from_does_not_come_back(rig, tmp_path):
    good_checkpoint(tmp_path)
    hub, _, _, _, run = rig(script=["its checkpoint is gone", "never"])
    start = hub.start_query

    def taken_over(*arguments):
        hub.office = False
        return start(*arguments)

    hub.start_query = taken_over
    with pytest.raises(Fenced):
        run()
    assert len(hub.starts) == 1


def test_other_rules_start_only_from_a_clean_stop(rig, tmp_path):
    good_checkpoint(tmp_path)
    other = msgspec.structs.replace(MANIFEST, core_version=CORE_VERSION + 1)
    hub, _, marker, _, run = rig(manifest=other)
    marker.stopped(exact=False)
    with pytest.raises(CoreVersionChanged, match="once"):
        run()
    marker.stopped(exact=True)
    run()
    assert "core version" in hub.starts[0].reason
