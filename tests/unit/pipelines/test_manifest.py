import errno
import os

import msgspec
import pytest

from pipelines import durable
from pipelines.manifest import (
    LogId,
    Manifest,
    ManifestStore,
    TableState,
    decode_manifest,
    encode_manifest,
)
from schemas.errors import DiskFull, Fenced, ManifestDamaged


def manifest(number=1, **fields):
    defaults = {
        "owner": "run-1",
        "created_at_ms": 1_800_000_000_000,
        "core_version": 1,
        "log": LogId(cluster_id="c", topic_id="t"),
        "checkpoint": "first",
        "next_offsets": [3, 0],
        "ranges": [(0, 0, 3)],
        "counts": {"records": 3, "stored": 3},
        "totals": {"records": 3, "stored": 3},
        "tables": {"inbox": TableState(version=1, rows_total=3, commits=[(1, '{"a":"ü"}\n')])},
        "orders": ['{"kind":"order"}'],
        "previous_hash": "",
    }
    return Manifest(number=number, **defaults | fields)


@pytest.fixture
def store(tmp_path):
    return ManifestStore(tmp_path / "manifests")


def test_a_manifest_comes_back_as_it_was_written(store):
    written = manifest()
    store.write(written)
    assert store.newest() == written
    assert store.read(1) == written


def test_the_file_is_plain_json_that_anyone_can_read(store):
    store.write(manifest())
    found = msgspec.json.decode(store.path(1).read_bytes())
    assert found["next_offsets"] == [3, 0]
    assert found["checksum"]


def test_an_empty_directory_has_no_newest(store):
    assert store.newest() is None
    assert store.numbers() == []


def test_the_newest_is_the_one_with_the_greatest_number(store):
    for number in (1, 2, 10):
        store.write(manifest(number)) if number < 3 else store.path(number).write_bytes(
            encode_manifest(manifest(number))
        )
    assert store.numbers() == [1, 2, 10]
    assert store.newest().number == 10


def test_a_number_can_be_written_only_once(store):
    store.write(manifest(owner="run-1"))
    with pytest.raises(Fenced, match="manifest 1 was written by another driver"):
        store.write(manifest(owner="run-2"))
    assert store.newest().owner == "run-1"
    assert [path.name for path in store.directory.iterdir()] == ["000000000001.json"]


def test_a_driver_that_slept_until_its_number_was_pruned_is_fenced(store):
    for number in range(1, 8):
        store.write(manifest(number))
    store.prune(keep=2)
    with pytest.raises(Fenced, match="long ago"):
        store.write(manifest(3))
    assert store.numbers() == [6, 7]


def test_a_driver_whose_temporary_file_was_cleared_away_is_fenced(store, monkeypatch):
    store.write(manifest(1))
    link = os.link

    def cleared_then_link(source, target):
        durable.remove_temporaries(store.directory)
        link(source, target)

    monkeypatch.setattr(durable.os, "link", cleared_then_link)
    with pytest.raises(Fenced):
        store.write(manifest(2))
    assert store.numbers() == [1]


def test_pruning_keeps_the_newest(store):
    for number in range(1, 6):
        store.write(manifest(number))
    assert store.prune(keep=3) == 2
    assert store.numbers() == [3, 4, 5]
    assert store.prune(keep=3) == 0


def test_what_a_killed_writer_left_is_no_manifest(store):
    store.write(manifest())
    (store.directory / ".000000000002.json.abc.tmp").write_bytes(b'{"num')
    assert store.newest().number == 1


@pytest.mark.parametrize("size", [0, 1, 100])
def test_a_torn_newest_manifest_says_what_to_do(store, size):
    store.write(manifest(1))
    store.write(manifest(2))
    data = store.path(2).read_bytes()
    store.path(2).write_bytes(data[:size])
    with pytest.raises(ManifestDamaged, match=r"manifest 2 .* move .*000000000002\.json"):
        store.newest()


def test_a_missing_manifest_is_a_damaged_one(store):
    with pytest.raises(ManifestDamaged):
        store.read(7)


def test_every_single_bit_counts():
    data = encode_manifest(manifest())
    assert decode_manifest(data) == manifest()
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        with pytest.raises(ValueError):
            decode_manifest(bytes(flipped))


def test_damaged_old_manifests_are_passed_over(store):
    for number in (1, 2, 3):
        store.write(manifest(number))
    store.path(2).write_bytes(b"")
    assert [found.number for found in store.newest_first()] == [3, 1]
    assert [found.number for found in store.newest_first(limit=1)] == [3]


def test_the_hash_is_of_the_file(store):
    digest = store.write(manifest(1))
    assert store.read_with_hash(1) == (manifest(1), digest)


def test_a_full_disk_is_a_typed_error_and_leaves_nothing(store, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store.write(manifest(1))
    monkeypatch.setattr(durable.os, "fsync", full)
    with pytest.raises(DiskFull, match="free some"):
        store.write(manifest(2))
    assert [path.name for path in store.directory.iterdir()] == ["000000000001.json"]
    assert store.newest().number == 1


def test_file_and_directory_are_flushed_in_this_order(store, monkeypatch):
    calls = []
    fsync, link = os.fsync, os.link
    monkeypatch.setattr(durable.os, "fsync", lambda handle: (calls.append("fsync"), fsync(handle)))
    monkeypatch.setattr(durable.os, "link", lambda *paths: (calls.append("link"), link(*paths)))
    store.write(manifest())
    assert calls == ["fsync", "link", "fsync"]


def test_other_errors_of_the_disk_stay_what_they_are(tmp_path):
    with pytest.raises(OSError, match="Input/output"), durable.typed_disk_full(tmp_path):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
