"""The streaming job's main: `farpost job run`, or `spark-submit` with the packaged archive."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from pipelines.clock import Clock
from pipelines.durable import typed_disk_full
from pipelines.hub import Query, SparkHub
from pipelines.marker import Marker
from pipelines.policies import read_policy
from pipelines.runner import Runner
from pipelines.session import end_of_predecessor, note_owner, start_session
from pipelines.sole import sole_driver
from pipelines.stateful import fold_query
from pipelines.status import Status, serve_status
from schemas.errors import BadSettings, DeliveryError, StartFailed
from schemas.settings import Settings


def unwatched(step: str) -> None:
    """Nobody looks at the steps of a commit."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of the job needs to know beside the settings."""

    data: Path
    bootstrap: str
    jars: tuple[Path, ...] = ()
    status_port: int = 0
    take_over: bool = False


def run(
    settings: Settings,
    options: Options,
    *,
    query: Query = fold_query,
    on_step: Callable[[str], None] = unwatched,
) -> None:
    """Run the query until SIGTERM or SIGINT; raises a DeliveryError if a person must act."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    options.data.mkdir(parents=True, exist_ok=True)
    status = Status()
    server = serve_status(status, options.status_port)
    try:
        with sole_driver(options.data, take_over=options.take_over):
            _run(settings, options, status, stop, query, on_step)
    finally:
        server.shutdown()
        server.server_close()


def _run(
    settings: Settings,
    options: Options,
    status: Status,
    stop: threading.Event,
    query: Query,
    on_step: Callable[[str], None],
) -> None:
    owner = uuid.uuid4().hex[:12]
    if not options.take_over:
        end_of_predecessor(options.data)
    with typed_disk_full(options.data):
        note_owner(options.data, owner)
        spark = start_session(settings, options.data, options.jars, owner)
    try:
        hub = SparkHub(
            spark,
            settings,
            data=options.data,
            bootstrap=options.bootstrap,
            owner=owner,
            query=query,
            on_step=on_step,
        )
        clock = Clock(
            hub.log,
            shards=hub.shards,
            trigger_ms=settings.job.trigger_ms,
            snapshot_interval_ms=settings.job.snapshot_interval_ms,
            policy=lambda: read_policy(options.data),
        )
        marker = Marker(options.data)
        with _jvm_needed():
            Runner(hub, clock, marker, status, take_over=options.take_over).run(stop)
    finally:
        with suppress(*_jvm_gone()):
            spark.stop()


@contextmanager
def _jvm_needed() -> Iterator[None]:
    """A JVM that was killed or ran out of memory takes the driver with it: a new one must start."""
    try:
        yield
    except _jvm_gone() as error:
        if hasattr(error, "java_exception"):
            raise  # it is there, and says what is wrong
        raise StartFailed(
            "Spark's JVM ended under the query, which usually means that memory ran out: nothing"
            " that was committed is harmed; start again, and if it ends again give it more with"
            " job.driver_memory_mb"
        ) from error


def _jvm_gone() -> tuple[type[Exception], ...]:
    """What calls into a JVM raise that is no longer there."""
    from py4j.protocol import Py4JError

    return Py4JError, ConnectionError


def main(
    arguments: Sequence[str] | None = None,
    *,
    query: Query = fold_query,
    on_step: Callable[[str], None] = unwatched,
) -> int:
    """The entry under spark-submit; `on_step` sees every step of a commit."""
    parser = argparse.ArgumentParser(prog="farpost-job", description=__doc__)
    parser.add_argument("--data", type=Path, help="data directory (default: settings)")
    parser.add_argument("--conf", type=Path, help="settings file")
    parser.add_argument("--bootstrap", help="host:port of the log (default: settings)")
    parser.add_argument("--status-port", type=int, default=0)
    parser.add_argument("--take-over", action="store_true", help="fence out a stuck driver")
    parsed = parser.parse_args(arguments)
    try:
        settings = Settings.parse(_text(parsed.conf), os.environ)
        bootstrap = parsed.bootstrap or settings.kafka.bootstrap
        if not bootstrap:
            raise BadSettings("kafka.bootstrap is not set: say where the log is, host:port")
        options = Options(
            data=Path(parsed.data or settings.data).expanduser().absolute(),
            bootstrap=bootstrap,
            status_port=parsed.status_port,
            take_over=parsed.take_over,
        )
        log_to_stderr()
        run(settings, options, query=query, on_step=on_step)
    except DeliveryError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - this is a main
        return 1
    return 0


def _text(conf: Path | None) -> str:
    try:
        return conf.read_text(encoding="utf-8") if conf else ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"cannot read the settings in {conf}: {error}") from None


class _JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname.lower(),
            "part": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def log_to_stderr() -> None:
    """Our own lines at INFO, those of libraries from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("pipelines").setLevel(logging.INFO)


if __name__ == "__main__":
    sys.exit(main())
