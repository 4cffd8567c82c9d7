"""Damaged and missing files, a full disk, another log: found at the next start, under load.

What can be mended is mended without a word from anybody; for the rest there is one sentence that
says what to do. The proof follows each time.
"""

import random
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import pytest

from farpost.proof import prove
from pipelines import kafka
from pipelines.manifest import arrow_dataset, open_tables
from schemas.errors import TableDamaged
from schemas.tables import TABLES
from tests.integration.rig import ROOT, Rig, rig_under_load

SMALL_MB = 400

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    with rig_under_load(tmp_path_factory.mktemp("damage"), seed=5) as rig:
        yield rig


def kill_at_any_moment(rig, seed):
    driver = rig.batches(2)
    time.sleep(random.Random(seed).uniform(0, 1.5))
    driver.kill()


def flip(path):
    """One byte in the middle is another one, and no checksum beside the file tells of it."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def newest(directory, pattern):
    """The file with the highest number as its name."""
    return max(directory.glob(pattern), key=lambda path: int(path.stem))


# -- tables ------------------------------------------------------------------------------------


def rows(rig, ends):
    """All rows of records below `ends`, without the two columns that say when they were written."""
    found = {}
    for name, table in open_tables(rig.data, rig.store.newest()).items():
        columns = [column.name for column in TABLES[name].packed]
        lines = arrow_dataset(table).to_table(columns).to_pylist()
        values = [list(line.values()) for line in lines if line["offset"] < ends[line["partition"]]]
        found[name] = sorted(values, key=lambda row: row[:3])
    return found


def rebuild(rig):
    words = ["rebuild", "--tables", "--data", str(rig.data), "--conf", str(rig.conf)]
    return subprocess.run(
        [sys.executable, "-m", "farpost", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_damaged_data_files_are_named_and_the_tables_made_again_are_the_same(rig):
    rig.batches(10)
    refused = rebuild(rig)
    assert refused.returncode == 1
    assert f"another driver (pid {rig.driver.pid})" in refused.stderr
    with rig.traffic.paused():
        rig.until_caught_up()
        rig.driver.kill()
    manifest = rig.store.newest()
    before = rows(rig, manifest.next_offsets)
    assert all(before[name] for name in ("inbox", "history", "dead_letters", "quarantine"))

    file = max((rig.data / "tables" / "inbox").rglob("*.parquet"), key=lambda p: p.stat().st_size)
    flip(file)
    with pytest.raises(TableDamaged, match=rf"{file.name} is damaged .*`farpost rebuild --tables`"):
        prove(rig.data, rig.settings)
    file.write_bytes(b"")
    driver = rig.start()
    assert driver.until_ended() == 1
    assert "error: [table_damaged] table inbox" in driver.said()
    assert file.name in driver.said()
    assert "`farpost rebuild --tables`" in driver.said()

    done = rebuild(rig)
    assert done.returncode == 0, done.stderr
    rig.cut(97)
    rig.check()
    assert len(rig.store.numbers()) > sum(manifest.next_offsets) / 97
    assert rows(rig, manifest.next_offsets) == before
    rig.cut(0)


def test_damaged_commit_files_are_put_back(rig):
    rig.batches(8)
    rig.spring("before manifest")  # leaves commits that no manifest names
    version = rig.store.newest().tables["history"].version
    history = sorted((rig.data / "tables" / "history" / "_delta_log").glob("*.json"))
    assert int(history[-1].stem) == version + 1
    history[-1].write_bytes(history[-1].read_bytes()[:40])  # the last one, not committed
    history[-2].write_bytes(history[-2].read_bytes()[:40])  # the last committed one
    history[-6].write_bytes(b"")  # and one in the middle
    inbox = sorted((rig.data / "tables" / "inbox" / "_delta_log").glob("*.json"))
    inbox[-1].write_bytes(b"")  # not committed
    inbox[-4].write_bytes(inbox[-4].read_bytes().replace(b"numRecords", b"numRekords"))
    said = rig.driver.said()
    for sentence in (
        f"history: commit {version} was damaged and was put back",
        f"history: commit {int(history[-6].stem)} was damaged and was put back",
        f"history: commits from {version + 1} on were torn and were removed",
        f"inbox: commit {int(inbox[-4].stem)} was damaged and was put back",
        f"inbox: commits from {int(inbox[-1].stem)} on were torn and were removed",
    ):
        assert sentence in said
    rig.check()


# -- the checkpoint, after a kill -9 at any moment ---------------------------------------------


def test_a_deleted_checkpoint_is_made_again(rig):
    kill_at_any_moment(rig, 1)
    shutil.rmtree(rig.checkpoint())
    assert "is new, because there is no checkpoint" in rig.driver.said()
    rig.check()


def test_a_checkpoint_of_ten_batches_ago_catches_up(rig):
    rig.batches(1)
    checkpoint, copy = rig.checkpoint(), rig.root / "older"
    # What is complete first, so that the copy never says more than it holds.
    for part in ("metadata", "commits", "offsets", "state"):
        copy_alive(checkpoint / part, copy / part)
    rig.batches(11)
    kill_at_any_moment(rig, 2)
    assert rig.checkpoint() == checkpoint
    shutil.rmtree(checkpoint)
    shutil.move(copy, checkpoint)
    assert ": goes on" in rig.driver.said()
    rig.check()


def copy_alive(source, target):
    """Copy a file or a directory that somebody still works with."""
    for path in (source, *source.rglob("*")):
        if path.is_file():
            place = target / path.relative_to(source) if path != source else target
            place.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # it was temporary, or old
                shutil.copyfile(path, place)


def test_an_emptied_file_in_the_checkpoint_is_survived(rig):
    kill_at_any_moment(rig, 3)
    newest(rig.checkpoint() / "offsets", "[0-9]*").write_bytes(b"")
    assert "is new, because the checkpoint cannot be read" in rig.driver.said()
    rig.check()


def committed_state(checkpoint):
    """What the next start will read; a newer file is of a batch that it does again."""
    version = 1 + int(newest(checkpoint / "commits", "[0-9]*").name)
    files = [*(checkpoint / "state" / "0" / "0").glob(f"{version}.*")]
    assert files
    return files


@pytest.mark.parametrize("how", ["flipped", "emptied"])
def test_a_damaged_state_is_survived(rig, how):
    kill_at_any_moment(rig, 4)
    for file in committed_state(rig.checkpoint()):
        flip(file) if how == "flipped" else file.write_bytes(b"")
    driver = rig.driver
    rig.check()
    assert rig.driver is driver
    assert "is new, because the query could not go on from it" in driver.said()


# -- the disk ----------------------------------------------------------------------------------


@contextmanager
def small_disk(path):
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL_MB}m", "farpost", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_a_full_disk_is_said_and_waited_for(rig):
    with rig.traffic.paused():
        rig.until_caught_up()
        rig.driver.kill()
    with small_disk(rig.root / "small") as data:
        # Another directory on the same log: its driver folds all of it again, then meets new load.
        small = Rig(rig.root / "small-driver", data, rig.bootstrap)
        small.traffic = rig.traffic
        try:
            driver = small.driver
            small.until_caught_up()
            fill(data / "filler")
            driver.until(lambda: "disk_full" in str(driver.status().get("reason")))
            assert driver.status()["ready"] is False
            time.sleep(5)
            (data / "filler").unlink()
            driver.until(lambda: driver.status().get("ready") is True)
            small.check()
            assert small.driver is driver
        finally:
            small.clean()


def fill(path):
    with path.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(65_536))
            except OSError:
                return


# -- the log -----------------------------------------------------------------------------------


def test_a_log_that_was_recreated_is_refused(rig):
    """The last one: the log is gone afterwards."""
    driver = rig.driver
    rig.traffic.stop()
    rig.until_caught_up()
    admin = kafka.admin(rig.settings, rig.bootstrap)
    admin.delete_topics(["inbound"])
    driver.until(lambda: kafka.describe_topic(admin, "inbound") is None)
    admin.create_topics(
        {"inbound": {"num_partitions": 2, "replication_factor": 1}}, wait_for_metadata=True
    )
    admin.close()
    committed = rig.store.newest().next_offsets
    assert driver.until_ended() == 1
    second = rig.start()
    assert second.until_ended() == 1
    for one in (driver, second):
        assert "error: [log_changed]" in one.said()
        assert "start with a new --data" in one.said()
    assert rig.store.newest().next_offsets == committed
