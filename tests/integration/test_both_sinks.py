"""The same log through both sinks gives the same tables.

The first run is the local stack's driver; the second is `spark-submit` on a small cluster of
processes, from the archive that `farpost job package` makes.
"""

import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from chispa import assert_df_equality

from farpost import jars
from farpost.local import local_hub
from farpost.package import pack_job
from farpost.places import load_settings
from farpost.ports import choose
from farpost.stack import ask_driver
from pipelines.manifest import ManifestStore, open_tables
from schemas.acks import AckType
from schemas.records import Kind
from schemas.signals import SignalKind
from schemas.tables import TABLES
from tests.factories import ack, ack_batch, device, envelope, lane_signal, signal
from tests.sessions import spark_session

NAMES = ("inbox", "history", "dead_letters", "quarantine", "snapshots")
BY_SINK = ("manifest", "row")  # the columns that say when, and not what


def feed_everything(feed):
    """Some of every kind of record."""
    expires_at_s = int(time.time()) + 3 * 86_400
    made = {}
    for lane in range(5):
        for n in range(1, 21):
            made[lane, n] = envelope(
                sender=device(10 + lane),
                recipient=device(20 + lane % 3),
                n=n,
                session=lane,
                expires_at_s=expires_at_s,
                message_id=bytes([lane, n] * 8),
            )
    order = [1, 2, 4, 3, 5, 5, *range(7, 21)]  # late, twice, and 6 never comes
    for lane in range(5):
        for n in order:
            feed.send(Kind.ENVELOPE, made[lane, n])
        to, by = device(20 + lane % 3), device(10 + lane)
        feed.send(Kind.ACK, ack(made[lane, 1], signer=to))
        feed.send(Kind.ACK, ack(made[lane, 1], signer=to, ack_type=AckType.READ))
        feed.send(Kind.ACK_BATCH, ack_batch([made[lane, 2], made[lane, 3]], signer=to))
        feed.send(Kind.SIGNAL, signal(made[lane, 4], kind=SignalKind.CANCEL, signer=by))
        feed.send(
            Kind.SIGNAL,
            lane_signal(kind=SignalKind.VOID, signer=by, peer=to, session=lane, counter=6),
        )
    collision = envelope(
        sender=device(10),
        recipient=device(20),
        n=90,
        session=0,
        expires_at_s=expires_at_s,
        message_id=bytes([0, 7] * 8),
    )
    feed.send(Kind.ENVELOPE, collision)
    feed.send(Kind.ENVELOPE, made[0, 20][:-1] + b"\0")
    feed.put_raw(0, b"noise")
    feed.put_raw(1, b"")
    big = envelope(
        sender=device(30),
        recipient=device(31),
        n=1,
        expires_at_s=expires_at_s,
        payload=bytes(200_000),
    )
    return feed.put(Kind.ENVELOPE, big)


def wait_until(condition, what, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not after {seconds} s"
        time.sleep(0.2)


def ends(data):
    newest = ManifestStore(data / "manifests").newest()
    return newest.next_offsets if newest else None


@contextmanager
def submitted(tmp_path, data, bootstrap):
    """The packaged job under spark-submit, with its own settings."""
    archive, main = pack_job(tmp_path / "dist")
    conf = tmp_path / "spark.toml"
    conf.write_text('[job]\nsink = "spark"\ntrigger_ms = 2000\n')
    port = choose("submitted", asked=0, remembered=0, taken=())
    submit = Path(sys.executable).parent / "spark-submit"
    command = [
        str(submit),
        *("--master", "local-cluster[2,1,1024]"),
        *("--jars", ",".join(str(jar) for jar in jars.jars("spark"))),
        *("--py-files", str(archive)),
        str(main),
        *("--data", str(data), "--conf", str(conf)),
        *("--bootstrap", bootstrap, "--status-port", str(port)),
    ]
    environ = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    log = tmp_path / "submitted.log"
    with log.open("wb") as out:
        # In another directory: the job must come from the archive, not from the checkout.
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environ, cwd=tmp_path)
    try:
        wait_until(
            lambda: ask_driver(port).ready or process.poll() is not None, "spark-submit is ready"
        )
        assert process.poll() is None, log.read_text()[-3_000:]
        yield process
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("sinks")
    settings = load_settings(environ={})
    one, two = tmp_path / "driver", tmp_path / "spark"
    with local_hub(settings, one) as hub:
        with hub.feed() as feed:
            feed_everything(feed)
            for partition in range(hub.log.partitions):
                feed.put_raw(partition, b"the end")
            last = feed.put_raw(0, b"the very end")
        wait_until(lambda: ends(one)[0] > last.offset, "the driver sink has all")
        fixed = ends(one)
        two.mkdir()
        shutil.copy(one / "policy.json", two)  # the same intent, and so the same policy records
        shutil.copy(one / "log.json", two)
        with submitted(tmp_path, two, hub.bootstrap):
            wait_until(
                lambda: (
                    (found := ends(two)) and all(a >= b for a, b in zip(found, fixed, strict=True))
                ),
                "the spark sink has all",
            )
    return one, two, fixed


@pytest.fixture(scope="module")
def spark(two_runs):
    with spark_session(two_runs[0]) as session:
        yield session


@pytest.mark.parametrize("name", NAMES)
def test_both_sinks_make_the_same_table(two_runs, spark, name):
    one, two, fixed = two_runs
    frames = [rows(spark, data, name, fixed) for data in (one, two)]
    assert_df_equality(*frames, ignore_row_order=True, ignore_nullable=True)
    if name in ("inbox", "history", "dead_letters", "quarantine"):
        assert frames[0].count() > 0


def rows(spark, data, name, ends):
    """A table as its newest manifest has it, up to where both runs came."""
    manifest = ManifestStore(data / "manifests").newest()
    version = manifest.tables[name].version
    frame = (
        spark.read.format("delta").option("versionAsOf", version).load(str(data / "tables" / name))
    )
    below = " or ".join(
        f"(`partition` = {number} and `offset` < {end})" for number, end in enumerate(ends)
    )
    return frame.where(below).drop(*BY_SINK)


def test_both_sinks_make_tables_that_everyone_can_read(two_runs):
    for data in two_runs[:2]:
        manifest = ManifestStore(data / "manifests").newest()
        for name, table in open_tables(data, manifest).items():
            assert table.protocol().min_reader_version == 1
            assert [field.name for field in table.schema().fields] == [
                column.name for column in TABLES[name].columns
            ]
            assert table.metadata().partition_columns == list(TABLES[name].partition_by)
