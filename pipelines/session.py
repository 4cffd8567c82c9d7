"""The Spark session of the job: every option that matters, and why."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.spark_sink import SPARK_OPTIONS
from schemas.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JVM_END_S = 10.0
SOCKET_NAME = len("/.01234567-89ab-cdef-0123-456789abcdef.sock")  # as Spark names them
SOCKET_PATH_MAX = 103  # bytes that fit every system's socket address; Linux would take 107


def session_options(settings: Settings, data: Path, jars: Sequence[Path]) -> dict[str, str]:
    """What the session needs, whoever starts the JVM."""
    scratch = data / "spark-tmp"
    options = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": str(settings.job.state_partitions),
        "spark.python.unix.domain.socket.enabled": "true",  # 15-20 % of the end-to-end time
        "spark.driver.maxResultSize": "0",  # a batch is bounded by its offsets already
        # Each piece costs some milliseconds; one of full-size envelopes is 64 MB on the way in and
        # up to 256 MB on the way out, which fits even if all of a batch is for one recipient.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "256",
        "spark.sql.streaming.minBatchesToRetain": "10",  # only the newest is ever started from
        "spark.shuffle.compress": "false",  # sealed bytes do not get smaller
        "spark.sql.ui.explainMode": "simple",  # for pages that nobody sees
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    if settings.job.sink == "spark":
        options.update(SPARK_OPTIONS)
    if jars:
        options["spark.jars"] = ",".join(str(jar) for jar in jars)
    return options


def jvm_options(settings: Settings, data: Path, owner: str) -> dict[str, str]:
    """What a JVM of our own needs beside; under spark-submit it has started without us."""
    scratch = data / "spark-tmp"
    options = {
        "spark.master": settings.job.master,
        "spark.driver.memory": f"{settings.job.driver_memory_mb}m",
        "spark.driver.extraJavaOptions": (
            f'-Dfarpost.owner={owner} "-Djava.io.tmpdir={scratch}" -XX:-UsePerfData'
            f' "-Dderby.system.home={scratch}"'
            # Else a thread may be missing from then on, and the query waits for it for ever.
            " -XX:+ExitOnOutOfMemoryError"
            # The quick compiler alone: the other one takes half of a core for minutes, and what
            # it makes faster is little beside what Spark does once a batch.
            " -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
        ),
        # Spark's own choice starts a dozen processes a batch (readlink, chmod) for its checkpoint.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing"
            ".FileSystemBasedCheckpointFileManager"
        ),
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    }
    if len(os.fsencode(scratch)) + SOCKET_NAME > SOCKET_PATH_MAX:
        options["spark.python.unix.domain.socket.enabled"] = "false"  # loopback serves any path
    return options


def start_session(settings: Settings, data: Path, jars: Sequence[Path], owner: str) -> SparkSession:
    """Start the JVM, or join the one spark-submit has started, which keeps its own master."""
    from pyspark.sql import SparkSession

    (data / "spark-tmp").mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    options = session_options(settings, data, jars)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # not under spark-submit
        options |= jvm_options(settings, data, owner)
    builder = SparkSession.builder.appName("farpost")
    for key, value in options.items():
        builder = builder.config(key, value)
    with _deaf_children():
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Start the JVM so that it ignores what asks the driver to stop, as a terminal or a
    supervisor sends that to all: the driver has work to do with it before it ends it.

    Meanwhile the signals are blocked here, so that none is lost.
    """
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def note_owner(data: Path, owner: str) -> None:
    (data / "driver.owner").write_text(owner)


def end_of_predecessor(data: Path) -> None:
    """Wait until the JVM of a driver that was killed is gone: it could still write state files."""
    note = data / "driver.owner"
    if not note.exists():
        return
    marker = f"-Dfarpost.owner={note.read_text().strip()} ".encode()
    deadline = time.monotonic() + JVM_END_S
    while (pid := _process_with(marker)) is not None:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def _process_with(marker: bytes) -> int | None:
    """The pid of a JVM that was started with this option."""
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if marker in (directory / "cmdline").read_bytes().replace(b"\0", b" "):
                return int(directory.name)
        except OSError:
            continue  # it ended while we looked
    return None
