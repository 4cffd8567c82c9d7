import os
import shutil

import msgspec
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines import recovery
from pipelines.delta_log import DeltaLog, read_actions, rows_added
from pipelines.manifest import ManifestStore, arrow_dataset
from pipelines.recovery import recover
from schemas.errors import DiskFull, Fenced, ManifestDamaged, TableDamaged
from schemas.tables import TABLES
from tests.batches import Driver, actual, expected

COMMITS = 6


class Hub:
    """Data with a few committed manifests and, if wished, rows of a driver that died."""

    def __init__(self, data):
        self.data = data
        self.store = ManifestStore(data / "manifests")
        self.driver = Driver(data, "run1")
        self.driver.start()
        self.end = 0
        for _ in range(COMMITS):
            self.commit(20)

    def commit(self, count):
        self.driver.commit((0, self.end, self.end + count))
        self.end += count

    def log(self, name="history"):
        return DeltaLog(self.data / "tables" / name)

    def die_before_manifest(self):
        """Rows of one batch in all tables that no manifest names."""

        def die(step):
            if step == "before manifest":
                raise KeyboardInterrupt

        self.driver.committer._on_step = die
        with pytest.raises(KeyboardInterrupt):
            self.driver.commit((0, self.end, self.end + 20))

    def checkpoint(self, version, name="history"):
        DeltaTable(self.data / "tables" / name, version=version).create_checkpoint()

    def recover(self):
        return recover(self.store, self.data / "tables")

    def check_goes_on(self):
        """Start, find what was committed, and commit more."""
        driver = Driver(self.data, "run2")
        driver.start()
        assert actual(self.data) == expected([self.end, 0])
        driver.commit((0, self.end - 5, self.end + 30))
        self.end += 30
        assert actual(self.data) == expected([self.end, 0])
        for name in TABLES:  # also for readers that take the newest version
            rows = arrow_dataset(DeltaTable(self.data / "tables" / name)).count_rows()
            assert rows == len(expected([self.end, 0])[name])
        return driver


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    hub = Hub(tmp_path_factory.mktemp("made"))
    return hub.data


@pytest.fixture
def hub(made, tmp_path):
    """A copy, as each test breaks its own."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    copy = object.__new__(Hub)
    copy.data = tmp_path
    copy.store = ManifestStore(tmp_path / "manifests")
    copy.driver = Driver(tmp_path, "run1")
    copy.driver.start()
    copy.end = 20 * COMMITS
    return copy


def truncate(path, size):
    os.truncate(path, size)


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


# -- nothing wrong ----------------------------------------------------------------------------


def test_tables_as_committed_are_left_alone(hub):
    files = {path: path.stat().st_mtime_ns for path in hub.data.rglob("*") if path.is_file()}
    found = hub.recover()
    assert found.notes == []
    assert found.versions == {
        name: state.version for name, state in hub.store.newest().tables.items()
    }
    assert files == {path: path.stat().st_mtime_ns for path in files}
    hub.check_goes_on()


def test_an_empty_directory_gets_empty_tables(tmp_path):
    found = recover(ManifestStore(tmp_path / "manifests"), tmp_path / "tables")
    assert found.manifest is None
    assert found.versions == dict.fromkeys(TABLES, 0)
    assert found.notes == []


# -- not committed: taken back ------------------------------------------------------------------


def test_rows_that_no_manifest_names_are_taken_back(hub):
    hub.die_before_manifest()
    found = hub.recover()
    assert f"history: commits {COMMITS + 1} to {COMMITS + 1} were taken back" in found.notes
    assert found.versions["history"] == COMMITS + 2
    hub.check_goes_on()


def test_versions_only_grow_however_often_a_start_dies(hub):
    hub.die_before_manifest()
    first, second = hub.recover(), hub.recover()
    assert second.versions["history"] > first.versions["history"]
    hub.check_goes_on()


def test_the_start_manifest_keeps_the_commits_that_were_taken_back(hub):
    hub.die_before_manifest()
    hub.recover()
    started = Driver(hub.data, "run2").start()
    kept = dict(started.tables["history"].commits)
    assert sorted(kept) == [COMMITS + 1, COMMITS + 2, COMMITS + 3]
    for version, text in kept.items():
        assert hub.log().text(version) == text
    truncate(hub.log().commit_path(COMMITS + 2), 0)
    truncate(hub.log().commit_path(COMMITS + 1), 10)
    hub.check_goes_on()


@pytest.mark.parametrize("size", [0, 1, 50, 700])
def test_a_torn_commit_that_no_manifest_names_is_removed(hub, size):
    hub.die_before_manifest()
    truncate(hub.log().commit_path(COMMITS + 1), size)
    found = hub.recover()
    assert f"history: commits from {COMMITS + 1} on were torn and were removed" in found.notes
    assert found.versions["history"] == COMMITS
    hub.check_goes_on()


def test_a_torn_commit_takes_those_after_it_along(hub):
    hub.die_before_manifest()
    hub.recover()  # one more above it
    truncate(hub.log().commit_path(COMMITS + 1), 0)
    found = hub.recover()
    assert found.versions["history"] == COMMITS
    hub.check_goes_on()


def test_a_commit_above_a_hole_is_removed(hub):
    hub.die_before_manifest()
    hub.recover()
    hub.log().commit_path(COMMITS + 1).unlink()
    assert hub.recover().versions["history"] == COMMITS
    hub.check_goes_on()


def test_a_commit_cut_off_between_two_lines_is_taken_back(hub):
    hub.die_before_manifest()
    path = hub.log("inbox").commit_path(COMMITS + 1)
    truncate(path, len(path.read_bytes().split(b"\n")[0]) + 1)
    hub.check_goes_on()


def test_a_commit_that_is_json_but_no_action_of_delta_is_removed(hub):
    hub.log().commit_path(COMMITS + 1).write_text('{"add":{"path":7}}\n')
    found = hub.recover()
    assert f"history: commits {COMMITS + 1} to {COMMITS + 1} were removed" in found.notes
    assert found.versions["history"] == COMMITS
    hub.check_goes_on()


def test_a_checkpoint_of_a_removed_commit_is_never_read(hub):
    hub.die_before_manifest()
    hub.checkpoint(COMMITS + 1)
    truncate(hub.log().commit_path(COMMITS + 1), 0)
    (hub.log().directory / f"{COMMITS + 1:020d}.crc").write_text("{}")
    (hub.log().directory / f".{COMMITS + 1:020d}.json.crc").write_text("sum")
    hub.recover()
    assert hub.log().checkpoints() == set()
    assert not hub.log().hint.exists()
    assert not list(hub.log().directory.glob("*.crc"))
    assert not list(hub.log().directory.glob(".*.crc"))
    hub.check_goes_on()


def test_a_checkpoint_above_the_manifest_is_dropped_and_its_commit_taken_back(hub):
    hub.die_before_manifest()
    hub.checkpoint(COMMITS + 1)
    hub.recover()
    assert hub.log().checkpoints() == set()
    hub.check_goes_on()


def test_what_another_program_appended_is_taken_back(hub):
    path = hub.data / "tables" / "history"
    write_deltalake(path, arrow_dataset(DeltaTable(path)).to_table(), mode="append")
    hub.check_goes_on()


def test_a_driver_that_appends_during_the_recovery_stops_it(hub, monkeypatch):
    hub.die_before_manifest()
    real = DeltaTable.restore

    def meanwhile(table, *args, **options):
        hub.log(table.table_uri.rstrip("/").split("/")[-1]).commit(
            COMMITS + 2, [{"commitInfo": {"operation": "WRITE"}}]
        )
        return real(table, *args, **options)

    monkeypatch.setattr(DeltaTable, "restore", meanwhile)
    with pytest.raises(Fenced, match="during the recovery"):
        hub.recover()
    monkeypatch.undo()
    hub.check_goes_on()


def test_a_full_disk_does_not_make_the_recovery_remove_commits(hub, monkeypatch):
    hub.die_before_manifest()

    def full(*_, **__):
        raise OSError("Generic LocalFileSystem error: No space left on device (os error 28)")

    monkeypatch.setattr(DeltaTable, "restore", full)
    with pytest.raises(DiskFull):
        hub.recover()
    assert hub.log("inbox").commit_path(COMMITS + 1).exists()
    monkeypatch.undo()
    hub.check_goes_on()


def test_temporary_files_of_killed_writers_are_cleared_away(hub):
    left = [
        hub.log().directory / f".{9:020d}.json.x.tmp",
        hub.store.directory / ".000000000009.json.x.tmp",
    ]
    for path in left:
        path.write_text("{")
    hub.recover()
    assert not any(path.exists() for path in left)


# -- committed: mended --------------------------------------------------------------------------


DAMAGES = {
    "emptied": lambda path: truncate(path, 0),
    "truncated": lambda path: truncate(path, 40),
    "cut at a line": lambda path: truncate(path, path.read_bytes().index(b"\n") + 1),
    "flipped": lambda path: flip(path, -30),
    "missing": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("name", "version"), [("inbox", 0), ("inbox", 3), ("inbox", COMMITS), ("snapshots", 2)]
)
def test_a_damaged_commit_is_put_back_byte_for_byte(hub, name, version, damage):
    path = hub.log(name).commit_path(version)
    before = path.read_bytes()
    DAMAGES[damage](path)
    found = hub.recover()
    assert f"{name}: commit {version} was damaged and was put back" in found.notes
    assert path.read_bytes() == before
    assert found.versions[name] == COMMITS
    hub.check_goes_on()


def test_a_whole_log_directory_can_be_put_back(hub):
    shutil.rmtree(hub.log().directory)
    hub.check_goes_on()


@pytest.mark.parametrize("damage", DAMAGES)
def test_commits_older_than_the_manifests_compared_are_mended_too(hub, monkeypatch, damage):
    monkeypatch.setattr(recovery, "MANIFESTS_COMPARED", 1)
    path = hub.log("inbox").commit_path(2)
    before = path.read_bytes()
    if damage == "flipped":  # in what matters: the name of a file
        place = before.index(b"parquet")
        path.write_bytes(before[:place] + b"Parquet" + before[place + 7 :])
    else:
        DAMAGES[damage](path)
    hub.recover()
    assert path.read_bytes() == before
    hub.check_goes_on()


def test_a_sum_that_spark_kept_of_a_damaged_commit_goes_with_it(hub):
    path = hub.log().commit_path(3)
    stale = path.with_name(f".{path.name}.crc")
    stale.write_bytes(b"sum")
    truncate(path, 0)
    hub.recover()
    assert not stale.exists()


@pytest.mark.parametrize("version", [2, COMMITS])
@pytest.mark.parametrize("size", [0, 3, 500])
def test_a_torn_checkpoint_is_dropped(hub, version, size):
    hub.checkpoint(version)
    truncate(hub.log().directory / f"{version:020d}.checkpoint.parquet", size)
    found = hub.recover()
    assert f"history: checkpoints [{version}] were torn or ahead, and were dropped" in found.notes
    hub.check_goes_on()


@pytest.mark.parametrize("place", [20, 400, -40])
def test_a_flipped_checkpoint_is_dropped_or_harmless(hub, place):
    hub.checkpoint(COMMITS)
    path = hub.log().directory / f"{COMMITS:020d}.checkpoint.parquet"
    data = bytearray(path.read_bytes())
    data[place : place + 20 if place > 0 else None] = bytes(20 if place > 0 else -place)
    data[-4:] = b"PAR1"
    path.write_bytes(data)
    hub.check_goes_on()


def test_a_checkpoint_with_other_rows_than_its_commits_is_dropped(hub):
    hub.checkpoint(3)
    log = hub.log().directory
    os.rename(log / f"{3:020d}.checkpoint.parquet", log / f"{COMMITS:020d}.checkpoint.parquet")
    hint = msgspec.json.decode(hub.log().hint.read_bytes()) | {"version": COMMITS}
    hub.log().hint.write_bytes(msgspec.json.encode(hint))
    found = hub.recover()
    assert f"history: checkpoints [{COMMITS}] did not fit the commits, and were dropped" in (
        found.notes
    )
    hub.check_goes_on()


@pytest.mark.parametrize("hint", ["", "{", '{"version":77,"size":3}', '{"version":"x"}', "[]"])
def test_a_hint_that_leads_nowhere_breaks_nothing(hub, hint):
    hub.log().hint.write_text(hint)
    hub.check_goes_on()


def test_a_good_checkpoint_and_its_hint_stay(hub):
    hub.checkpoint(4)
    assert hub.recover().notes == []
    assert hub.log().checkpoints() == {4}
    assert hub.log().hint.exists()


def test_commits_that_a_checkpoint_has_are_not_missed(hub):
    """As upkeep may leave it: the log begins later than version 0, and no manifest has it."""
    hub.checkpoint(COMMITS)
    for number in hub.store.numbers()[:-1]:
        hub.store.path(number).unlink()
    for version in range(3):
        hub.log().commit_path(version).unlink()
    assert hub.recover().notes == []
    hub.check_goes_on()


# -- what nobody can mend -----------------------------------------------------------------------


def a_file_of(hub, name):
    return next(path for path in (hub.data / "tables" / name).rglob("part-*.parquet"))


@pytest.mark.parametrize("name", ["inbox", "history"])
@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: truncate(path, 0), "has 0 bytes"),
        (lambda path: truncate(path, 100), "has 100 bytes"),
    ],
)
def test_a_damaged_data_file_is_named_and_the_way_out_is_said(hub, name, damage, sentence):
    path = a_file_of(hub, name)
    damage(path)
    with pytest.raises(TableDamaged) as caught:
        hub.recover()
    assert f"table {name}" in str(caught.value)
    assert path.name in str(caught.value)
    assert sentence in str(caught.value)
    assert "farpost rebuild --tables" in str(caught.value)
    assert hub.store.newest().number == hub.driver.committer.newest.number


def test_a_commit_that_no_manifest_keeps_any_more_is_said(hub):
    for number in hub.store.numbers()[:-1]:
        hub.store.path(number).unlink()
    truncate(hub.log().commit_path(3), 0)
    with pytest.raises(TableDamaged, match=r"table history: version .* rows, the manifest says"):
        hub.recover()


def test_a_table_that_is_gone_is_said(hub):
    shutil.rmtree(hub.data / "tables" / "inbox")
    with pytest.raises(TableDamaged, match=r"table inbox: file .* is missing"):
        hub.recover()


def test_a_newest_manifest_that_is_torn_is_said(hub):
    truncate(hub.store.path(hub.store.numbers()[-1]), 100)
    with pytest.raises(ManifestDamaged, match=r"move .* to another place"):
        hub.recover()


def test_after_moving_a_torn_manifest_away_its_records_are_read_again(hub):
    hub.commit(10)
    number = hub.store.numbers()[-1]
    truncate(hub.store.path(number), 100)
    hub.store.path(number).rename(hub.data / "torn.json")
    hub.end -= 10
    hub.check_goes_on()


def test_rows_without_any_manifest_are_not_thrown_away(hub):
    shutil.rmtree(hub.store.directory)
    with pytest.raises(ManifestDamaged, match="put the directory `manifests` back"):
        hub.recover()


# -- the very first start -----------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 50])
def test_a_table_whose_creation_was_torn_is_created_again(tmp_path, size):
    store = ManifestStore(tmp_path / "manifests")
    recover(store, tmp_path / "tables")
    truncate(DeltaLog(tmp_path / "tables" / "inbox").commit_path(0), size)
    found = recover(store, tmp_path / "tables")
    assert found.notes == ["inbox: had been created only in part and was created again"]
    driver = Driver(tmp_path, "run1")
    driver.start()
    driver.commit((0, 0, 9))
    assert actual(tmp_path) == expected([9, 0])


def test_a_start_that_died_between_two_tables_is_finished(tmp_path):
    recover(ManifestStore(tmp_path / "manifests"), tmp_path / "tables")
    shutil.rmtree(tmp_path / "tables" / "snapshots")
    driver = Driver(tmp_path, "run1")
    driver.start()
    driver.commit((0, 0, 9))
    assert actual(tmp_path) == expected([9, 0])


def test_a_table_that_is_new_in_this_release_joins(hub):
    shutil.rmtree(hub.data / "tables" / "snapshots")
    newest = hub.store.newest()
    tables = {name: state for name, state in newest.tables.items() if name != "snapshots"}
    hub.store.write(msgspec.structs.replace(newest, number=newest.number + 1, tables=tables))
    started = Driver(hub.data, "run2").start()
    assert (started.tables["snapshots"].version, started.tables["snapshots"].rows_total) == (0, 0)


# -- reading commit files -----------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"\n", b"{", b"7\n", b'{"a":1,"b":2}', b"\xff\xfe", b"[]"])
def test_what_is_no_commit_raises_value_error(data):
    with pytest.raises(ValueError):
        read_actions(data)


def test_rows_of_a_commit_are_counted(hub):
    actions = read_actions(hub.log().text(1).encode())
    assert rows_added(actions) == len(expected([20, 0])["history"])
