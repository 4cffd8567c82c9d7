import threading

import msgspec
import pytest
from chispa import assert_df_equality
from deltalake import DeltaTable

from pipelines import spark_sink
from pipelines.driver_sink import DriverSink
from pipelines.manifest import open_tables
from pipelines.sinks import Target, create_table
from pipelines.spark_sink import SparkChunks, SparkSink, SparkTables
from schemas.errors import Fenced
from schemas.tables import TABLES
from tests.batches import Driver, actual, batch, expected


class SparkDriver(Driver):
    """The same, with the sink for clusters."""

    def __init__(self, spark, data, owner, **options):
        super().__init__(data, owner, tables=SparkTables(data / "tables"), **options)
        self.spark = spark
        self.sink = SparkSink(self.committer)

    def commit(self, *ranges):
        frame = self.spark.createDataFrame(batch(*ranges)).repartition(3)
        return self.sink.write(frame, 0)[0]


@pytest.fixture
def driver(spark, tmp_path):
    driver = SparkDriver(spark, tmp_path, "run1")
    driver.start()
    return driver


def log_of(data, name):
    return data / "tables" / name / "_delta_log"


def test_executors_put_the_rows_of_a_batch_into_all_tables(driver, tmp_path):
    manifest = driver.commit((0, 0, 30), (1, 0, 20))
    assert manifest.next_offsets == [30, 20]
    assert actual(tmp_path) == expected([30, 20])
    assert driver.commit((0, 10, 30)) is None
    driver.commit((0, 22, 41), (1, 20, 22))
    assert actual(tmp_path) == expected([41, 22])


def test_both_sinks_make_the_same_tables(spark, tmp_path):
    """Row by row with all columns, and what a reader must know to open them."""
    one, other = tmp_path / "spark", tmp_path / "driver"
    cuts = [((0, 0, 17), (1, 0, 5)), ((0, 12, 40),), ((1, 5, 33),)]
    for driver in (SparkDriver(spark, one, "run1"), Driver(other, "run1")):
        driver.start()
        for ranges in cuts:
            driver.commit(*ranges)
    for name, table in TABLES.items():
        names = [column.name for column in table.columns]
        frames = [
            spark.read.format("delta").load(str(data / "tables" / name)).select(names)
            for data in (one, other)
        ]
        assert_df_equality(*frames, ignore_row_order=True)
        opened = [DeltaTable(data / "tables" / name) for data in (one, other)]
        assert opened[0].schema() == opened[1].schema()
        assert opened[0].protocol() == opened[1].protocol()
        assert opened[0].metadata().partition_columns == opened[1].metadata().partition_columns
        assert opened[0].metadata().configuration == opened[1].metadata().configuration
        assert opened[0].version() == opened[1].version()


def test_the_sinks_can_follow_each_other_on_the_same_tables(spark, tmp_path):
    end = 0
    for turn in range(3):
        driver = (
            SparkDriver(spark, tmp_path, f"run{turn}")
            if turn == 1
            else Driver(tmp_path, f"run{turn}")
        )
        driver.start()
        driver.commit((0, end, end + 4))
        end += 4
    assert actual(tmp_path) == expected([end, 0])


def test_spark_reads_what_the_driver_wrote_after_a_checkpoint(spark, tmp_path):
    driver = Driver(tmp_path, "run1")
    driver.start()
    for offset in range(5):
        driver.commit((0, offset * 9, offset * 9 + 9))
    for name, table in open_tables(tmp_path, driver.store.newest()).items():
        table.create_checkpoint()
        found = spark.read.format("delta").load(str(tmp_path / "tables" / name)).count()
        assert found == len(expected([45, 0])[name])


def test_a_batch_of_the_query_can_be_collected_by_the_driver(spark, tmp_path):
    driver = Driver(tmp_path, "run1")
    driver.start()
    frame = spark.createDataFrame(batch((0, 0, 30))).repartition(3)
    manifest, reports = DriverSink(driver.committer).write(frame, 0)
    assert manifest.next_offsets == [30, 0]
    assert sorted(offset for report in reports for offset in report.offsets) == list(range(30))
    assert actual(tmp_path) == expected([30, 0])


def test_the_manifest_keeps_the_text_of_commits_that_spark_made(driver, tmp_path):
    manifest = driver.commit((0, 0, 30))
    for name, state in manifest.tables.items():
        for version, text in state.commits:
            assert (log_of(tmp_path, name) / f"{version:020d}.json").read_text() == text


def test_rows_of_a_killed_driver_are_taken_back(driver, tmp_path, spark):
    def die(step):
        if step == "after history":
            raise KeyboardInterrupt

    driver.commit((0, 0, 3))
    driver.committer._on_step = die
    with pytest.raises(KeyboardInterrupt):
        driver.commit((0, 3, 6))
    again = SparkDriver(spark, tmp_path, "run2")
    again.start()
    assert [f"{name}: commits 2 to 2 were taken back" for name in ("inbox", "history")] == (
        again.notes
    )
    again.commit((0, 2, 8))
    assert actual(tmp_path) == expected([8, 0])


def test_a_commit_that_spark_made_is_put_back(driver, tmp_path, spark):
    driver.commit((0, 0, 3))
    driver.commit((0, 3, 6))
    path = log_of(tmp_path, "history") / f"{1:020d}.json"
    before = path.read_bytes()
    path.write_bytes(b"")
    again = SparkDriver(spark, tmp_path, "run2")
    again.start()
    assert path.read_bytes() == before
    again.commit((0, 6, 9))
    assert actual(tmp_path) == expected([9, 0])
    found = spark.read.format("delta").load(str(tmp_path / "tables" / "history")).count()
    assert found == len(expected([9, 0])["history"])


def test_a_commit_that_was_replaced_behind_our_back_is_noticed_and_put_back(driver, tmp_path):
    driver.commit((0, 0, 3))
    path = log_of(tmp_path, "history") / f"{1:020d}.json"
    before = path.read_bytes()
    path.with_suffix(".late").write_text('{"commitInfo":{}}\n')
    path.with_suffix(".late").replace(path)
    with pytest.raises(Fenced):
        driver.commit((0, 3, 6))
    driver.start()
    assert path.read_bytes() == before
    driver.commit((0, 3, 6))
    assert actual(tmp_path) == expected([6, 0])


def test_a_torn_commit_of_spark_above_the_manifest_is_removed(driver, tmp_path, spark):
    driver.commit((0, 0, 3))

    def die(step):
        if step == "after history":
            raise KeyboardInterrupt

    driver.committer._on_step = die
    with pytest.raises(KeyboardInterrupt):
        driver.commit((0, 3, 6))
    path = log_of(tmp_path, "history") / f"{2:020d}.json"
    path.write_bytes(path.read_bytes()[:50])
    again = SparkDriver(spark, tmp_path, "run2")
    again.start()
    assert not list(log_of(tmp_path, "history").glob(f"*{2:020d}*"))
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # a crash takes the JVM, too
    again.commit((0, 3, 6))
    assert actual(tmp_path) == expected([6, 0])


# -- a paused driver --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "other"),
    [("before appends", "spark"), ("after inbox", "driver"), ("before manifest", "spark")],
)
def test_a_paused_driver_that_wakes_after_another_took_over_harms_nothing(
    spark, tmp_path, step, other
):
    second = Driver(tmp_path, "run2") if other == "driver" else SparkDriver(spark, tmp_path, "run2")

    def take_over(reached):
        if reached == step:
            second.start()
            second.commit((0, 4, 7))

    first = SparkDriver(spark, tmp_path, "run1")
    first.start()
    first.commit((0, 0, 4))
    first.committer._on_step = take_over
    with pytest.raises(Fenced):
        first.commit((0, 4, 6))
    assert not first.committer.in_office()
    try:
        second.commit((0, 7, 9))
    except Fenced:
        assert second.committer.in_office()
        second.start()
        second.commit((0, 7, 9))
    assert actual(tmp_path) == expected([9, 0])


def test_an_append_that_comes_second_is_fenced_even_if_spark_finds_room_above(
    spark, tmp_path, monkeypatch
):
    for table in TABLES.values():
        create_table(tmp_path, table)
    history = TABLES["history"]
    target = Target(owner="run1", manifest=2, version=1, floors=[0, 0])
    chunks = SparkChunks(
        batch=spark.createDataFrame(batch((0, 0, 9))),
        keys=[(0, o, i) for o in range(9) for i in range(1 + o % 3) if o % 7 != 3],
    )
    SparkTables(tmp_path).append(history, chunks, target)
    monkeypatch.setattr(spark_sink, "is_taken", _late(spark_sink.is_taken))
    later = Target(owner="run2", manifest=2, version=1, floors=[0, 0])
    with pytest.raises(Fenced, match="version 1 of table history"):
        SparkTables(tmp_path).append(history, chunks, later)
    assert DeltaTable(tmp_path / "history").version() == 2  # a recovery takes it back


def _late(is_taken):
    """Says at first that nobody was faster: he comes a moment later."""
    asked = threading.Event()

    def answer(*args):
        if not asked.is_set():
            asked.set()
            return False
        return is_taken(*args)

    return answer


def test_statistics_of_both_sinks_are_of_the_same_columns(spark, tmp_path):
    found = []
    for data, driver in (
        (tmp_path / "a", SparkDriver(spark, tmp_path / "a", "run1")),
        (tmp_path / "b", Driver(tmp_path / "b", "run1")),
    ):
        driver.start()
        driver.commit((0, 0, 30))
        text = (log_of(data, "inbox") / f"{1:020d}.json").read_text()
        actions = [msgspec.json.decode(line) for line in text.splitlines()]
        stats = [msgspec.json.decode(a["add"]["stats"]) for a in actions if "add" in a]
        found.append({name for one in stats for name in one["minValues"]})
    assert found[0] == found[1]
