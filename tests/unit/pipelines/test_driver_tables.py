import os
import subprocess
import sys

import msgspec
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from pipelines import driver_sink, unpack
from pipelines.driver_sink import DriverTables
from pipelines.manifest import arrow_dataset
from pipelines.packs import encode_rows
from pipelines.sinks import Target, create_table
from schemas.errors import Fenced
from schemas.tables import TABLES
from tests.batches import rows_in, rows_of

INBOX, HISTORY = TABLES["inbox"], TABLES["history"]


@pytest.fixture
def tables(tmp_path):
    for table in TABLES.values():
        create_table(tmp_path, table)
    return DriverTables(tmp_path)


def target(version=1, floors=(0, 0), manifest=2):
    return Target(owner="run1", manifest=manifest, version=version, floors=floors)


def packs(table, *offsets, partition=0):
    return [encode_rows(rows_of(partition, offset)[table.name]) for offset in offsets]


def adds(directory, table, version):
    text = (directory / table.name / "_delta_log" / f"{version:020d}.json").read_text()
    actions = [msgspec.json.decode(line) for line in text.splitlines()]
    return [action["add"] for action in actions if "add" in action]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_table_opens_for_every_reader(tables, tmp_path, table):
    delta = DeltaTable(tmp_path / table.name)
    protocol = delta.protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    assert delta.metadata().partition_columns == list(table.partition_by)
    fields = {field.name: field for field in delta.schema().fields}
    assert list(fields) == [column.name for column in table.columns]
    assert [name for name, field in fields.items() if not field.nullable] == [
        "partition",
        "offset",
        "index",
    ]


def test_creating_a_table_that_is_there_changes_nothing(tables, tmp_path):
    tables.append(HISTORY, packs(HISTORY, 0), target())
    create_table(tmp_path, HISTORY)
    assert DeltaTable(tmp_path / "history").version() == 1


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_rows_come_back_as_they_were(tables, tmp_path, table):
    offsets = range(40)
    appended = tables.append(table, packs(table, *offsets), target())
    expected = [row for offset in offsets for row in rows_of(0, offset)[table.name]]
    assert rows_in(DeltaTable(tmp_path / table.name), table.name) == expected
    assert appended.rows == len(expected)


def test_rows_below_the_floor_are_dropped(tables, tmp_path):
    appended = tables.append(HISTORY, packs(HISTORY, 0, 1, 2), target(floors=(2, 0)))
    assert appended.rows == len(rows_of(0, 2)["history"])
    assert rows_in(DeltaTable(tmp_path / "history"), "history") == rows_of(0, 2)["history"]


def test_nothing_above_the_floor_is_no_commit(tables, tmp_path):
    assert tables.append(HISTORY, packs(HISTORY, 0, 1), target(floors=(2, 0))) is None
    assert DeltaTable(tmp_path / "history").version() == 0


def test_rows_are_numbered_by_their_place_in_the_log(tables, tmp_path):
    mixed = [*packs(INBOX, 2, partition=1), *packs(INBOX, 7, 1), *packs(INBOX, 0, partition=1)]
    tables.append(INBOX, mixed, target(manifest=9))
    found = arrow_dataset(DeltaTable(tmp_path / "inbox")).to_table().sort_by("row").to_pylist()
    assert [(row["partition"], row["offset"], row["row"]) for row in found] == [
        (0, 1, 0),
        (0, 7, 1),
        (1, 0, 2),
        (1, 2, 3),
    ]
    assert {row["manifest"] for row in found} == {9}


def test_a_version_that_is_taken_fences_and_leaves_no_file(tables, tmp_path):
    tables.append(INBOX, packs(INBOX, 0), target())
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(Fenced, match="version 1 of table inbox"):
        tables.append(INBOX, packs(INBOX, 1), target(manifest=3))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_version_taken_while_the_files_are_written_fences(tables, tmp_path, monkeypatch):
    monkeypatch.setattr(driver_sink, "is_taken", lambda *_: False)  # it came just after
    tables.append(INBOX, packs(INBOX, 0), target())
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(Fenced):
        tables.append(INBOX, packs(INBOX, 0), target(manifest=3))
    assert sorted(tmp_path.rglob("*")) == before


def test_there_is_one_file_for_each_table_partition(tables, tmp_path):
    tables.append(INBOX, packs(INBOX, *range(9)), target())
    found = {add["path"].split("/")[0]: add["partitionValues"] for add in adds(tmp_path, INBOX, 1)}
    assert found == {
        "expires_on=2026-11-19": {"expires_on": "2026-11-19"},
        "expires_on=2026-W47": {"expires_on": "2026-W47"},
        "expires_on=never": {"expires_on": "never"},
    }


@pytest.mark.parametrize("value", [None, "a b/c=%d"])
def test_odd_values_of_the_partition_column_come_back(tables, tmp_path, value):
    row = rows_of(0, 0)["inbox"][0]
    row[[column.name for column in INBOX.packed].index("expires_on")] = value
    tables.append(INBOX, [encode_rows([row])], target())
    assert rows_in(DeltaTable(tmp_path / "inbox"), "inbox") == [row]


def test_a_large_batch_is_written_piece_by_piece_into_one_commit(tables, tmp_path, monkeypatch):
    monkeypatch.setattr(unpack, "BATCH_BYTES", 500)
    monkeypatch.setattr(driver_sink, "FILE_BYTES_MAX", 2_000)
    tables.append(INBOX, packs(INBOX, *range(60)), target())
    assert DeltaTable(tmp_path / "inbox").version() == 1
    assert len(adds(tmp_path, INBOX, 1)) > 3
    assert rows_in(DeltaTable(tmp_path / "inbox"), "inbox") == [
        row for offset in range(60) for row in rows_of(0, offset)["inbox"]
    ]


def test_statistics_are_those_of_the_rows(tables, tmp_path, monkeypatch):
    monkeypatch.setattr(unpack, "BATCH_BYTES", 500)  # gathered over several batches
    tables.append(HISTORY, packs(HISTORY, *range(20)), target())
    (add,) = adds(tmp_path, HISTORY, 1)
    found = msgspec.json.decode(add["stats"])
    rows = arrow_dataset(DeltaTable(tmp_path / "history")).to_table().to_pylist()
    assert found["numRecords"] == len(rows)
    for name, least in found["minValues"].items():
        values = [row[name] for row in rows if row[name] is not None]
        assert (least, found["maxValues"][name]) == (min(values), max(values))
        assert found["nullCount"][name] == len(rows) - len(values)
    assert {"offset", "recipient", "message_id", "manifest"} <= found["minValues"].keys()
    assert "proof" not in found["nullCount"]


def test_only_null_values_have_no_least_and_no_greatest(tables, tmp_path):
    row = rows_of(0, 0)["history"][0]
    row[3] = None
    tables.append(HISTORY, [encode_rows([row])], target())
    found = msgspec.json.decode(adds(tmp_path, HISTORY, 1)[0]["stats"])
    assert "message_id" not in found["minValues"]
    assert found["nullCount"]["message_id"] == 1


def test_files_say_which_ids_they_cannot_have(tables, tmp_path):
    tables.append(HISTORY, packs(HISTORY, *range(20)), target())
    (add,) = adds(tmp_path, HISTORY, 1)
    group = pq.ParquetFile(tmp_path / "history" / add["path"]).metadata.row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    assert columns["message_id"].bloom_filter_length > 0
    assert columns["message_id"].is_stats_set
    assert not columns["proof"].is_stats_set


def test_a_pipeline_module_for_executors_imports_no_delta_rs_and_no_spark():
    code = (
        "import sys, pipelines.unpack, pipelines.packs;"
        "sys.exit(any(name.split('.')[0] in ('deltalake', 'pyspark') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# -- a full disk ------------------------------------------------------------------------------

FULL = """
import os, sys
from pathlib import Path
from schemas.errors import DiskFull
from tests.batches import Driver, actual, expected
data, spare = Path(sys.argv[1]), Path(sys.argv[1]) / "spare"
driver = Driver(data, "run1")
driver.start()
driver.commit((0, 0, 5))
free = os.statvfs(data).f_bavail * os.statvfs(data).f_frsize
spare.write_bytes(b"x" * (free - int(sys.argv[2])))
try:
    driver.commit((0, 5, 60))
except DiskFull as error:
    print(error)
else:
    raise SystemExit("it did not notice")
assert actual(data) == expected([5, 0])
try:
    driver.start()
except DiskFull:
    pass
assert actual(data) == expected([5, 0])
spare.unlink()
driver.start()
driver.commit((0, 5, 60))
assert actual(data) == expected([60, 0])
print("went on")
"""


@pytest.mark.parametrize("free", [0, 4_096, 16_384, 40_960, 57_344])
def test_a_full_disk_is_said_and_harms_nothing(tmp_path, free):
    """On a file system of its own: the process may mount one in a name space of its own."""
    mount = f'mount -t tmpfs -o size=4m none {tmp_path} && exec "$@"'
    argv = ["unshare", "-rm", "sh", "-c", mount, "sh", sys.executable, "-c", FULL]
    try:
        probe = subprocess.run(["unshare", "-rm", "sh", "-c", f"mount -t tmpfs none {tmp_path}"])
    except FileNotFoundError:
        probe = None
    if probe is None or probe.returncode != 0:
        pytest.skip("no file system can be mounted here")
    done = subprocess.run(
        [*argv, str(tmp_path), str(free)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no space is left" in done.stdout
    assert done.stdout.endswith("went on\n")
