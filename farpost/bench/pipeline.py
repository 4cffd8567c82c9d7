"""`farpost bench pipeline`: how long until a message is committed, and what that costs.

Two runs of the same open-loop load on this machine, each on a fresh hub: the full query, then the
control (see `control`). Latency is from the log's own time of a record to the log's time of the
mark that its manifest is committed, so it includes everything in between.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import psutil

from farpost.answers import open_answers
from farpost.bench.load import Maker, Sent, drive
from farpost.local import LocalHub, local_hub
from farpost.ports import choose
from farpost.stack import ask_driver
from pipelines import kafka
from pipelines.manifest import ManifestStore
from schemas.errors import StartFailed
from schemas.settings import Settings
from schemas.topics import Topics

WARM_UP_S = 60
LINGER_MS = 20  # so that the generator takes little of the machine it shares
SETTLE_S = 10.0
IDLE_S = 20.0
COMMIT_WAIT_S = 120.0
START_WAIT_S = 120.0

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is asked: messages a second, for how long, of how many bytes."""

    rate: int
    seconds: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was measured; the names are those of the JSON."""

    committed_p50_ms: int
    committed_p95_ms: int
    committed_p99_ms: int
    lost: int
    duplicated: int
    cpu_load: float
    cpu_idle: float
    per_cpu_s: float
    control_per_cpu_s: float
    ratio: float
    pending: int
    rate: int
    seconds: int
    size: int
    trigger_ms: int
    shards: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Phase:
    latencies_ms: list[int]
    cpu_load: float
    cpu_idle: float
    sent: int


def bench_pipeline(settings: Settings, load: Load, report: Report) -> Result:
    """Run both phases and put their figures side by side."""
    with tempfile.TemporaryDirectory(prefix="farpost-bench-") as directory:
        report("the full query")
        with local_hub(settings, Path(directory) / "full", report=report) as hub:
            pid = hub.state().part("driver").pid
            assert pid is not None, "a hub that is ready has a driver"
            full = _measure(hub, pid, load, report)
            stored, distinct = _stored(hub)
        report("the control: same source, shuffle and sink, nothing decided")
        with _control_hub(settings, Path(directory) / "control", report) as (hub, pid):
            control = _measure(hub, pid, load, report)
    p50, p95, p99 = (_percentile(full.latencies_ms, share) for share in (0.5, 0.95, 0.99))
    per_cpu_s = load.rate / full.cpu_load
    control_per_cpu_s = load.rate / control.cpu_load
    return Result(
        committed_p50_ms=p50,
        committed_p95_ms=p95,
        committed_p99_ms=p99,
        lost=full.sent - distinct,
        duplicated=stored - distinct,
        cpu_load=round(full.cpu_load, 3),
        cpu_idle=round(full.cpu_idle, 3),
        per_cpu_s=round(per_cpu_s, 1),
        control_per_cpu_s=round(control_per_cpu_s, 1),
        ratio=round(per_cpu_s / control_per_cpu_s, 3),
        pending=distinct,
        trigger_ms=settings.job.trigger_ms,
        shards=settings.log.shards,
        **asdict(load),
    )


def _measure(hub: LocalHub, driver: int, load: Load, report: Report) -> _Phase:
    maker = Maker(load.size)
    report(f"making {load.rate * (WARM_UP_S + load.seconds):,} envelopes of {load.size} bytes")
    warm, hot = (maker.make(load.rate * span_s) for span_s in (WARM_UP_S, load.seconds))
    with hub.feed(linger_ms=LINGER_MS) as feed:
        report(f"warming up for {WARM_UP_S} s, then measuring for {load.seconds} s")
        before = drive(feed, warm, load.rate)
        cpu_s, started = _cpu_s(driver), time.monotonic()
        sent = drive(feed, hot, load.rate)
        cpu_load = (_cpu_s(driver) - cpu_s) / (time.monotonic() - started)
    _await_committed(hub, sent)
    time.sleep(SETTLE_S)
    cpu_s, started = _cpu_s(driver), time.monotonic()
    time.sleep(IDLE_S)
    cpu_idle = (_cpu_s(driver) - cpu_s) / (time.monotonic() - started)
    return _Phase(
        latencies_ms=_latencies_ms(hub, sent),
        cpu_load=cpu_load,
        cpu_idle=cpu_idle,
        sent=len(before) + len(sent),
    )


def _cpu_s(pid: int) -> float:
    """CPU-seconds used so far by a process and all below it."""
    root = psutil.Process(pid)
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            used = process.cpu_times()
        except psutil.NoSuchProcess:
            continue  # its parent counts it now, as a child that has ended
        total += used.user + used.system + used.children_user + used.children_system
    return total


def _await_committed(hub: LocalHub, sent: Sequence[Sent]) -> None:
    ends = {one.partition: one.offset for one in sent}
    store = ManifestStore(hub.layout.manifests)
    deadline = time.monotonic() + COMMIT_WAIT_S
    while time.monotonic() < deadline:
        newest = store.newest()
        if newest and all(newest.next_offsets[p] > offset for p, offset in ends.items()):
            return
        time.sleep(0.5)
    raise StartFailed(f"not everything was committed {COMMIT_WAIT_S:.0f} s after the load ended")


def _latencies_ms(hub: LocalHub, sent: Sequence[Sent]) -> list[int]:
    """For each message: from its place in the log to the mark of the manifest that has it."""
    marks = _marks(hub)
    store = ManifestStore(hub.layout.manifests)
    partitions = hub.log.partitions
    ends: list[list[int]] = [[] for _ in range(partitions)]
    times: list[int] = []
    for number in store.numbers():
        if number in marks:
            times.append(marks[number])
            for partition, offset in enumerate(store.read(number).next_offsets):
                ends[partition].append(offset)
    return sorted(
        times[bisect_right(ends[one.partition], one.offset)] - one.appended_at_ms for one in sent
    )


def _marks(hub: LocalHub) -> dict[int, int]:
    """Manifest number -> when its mark was in the log."""
    from kafka import TopicPartition

    topic = Topics(hub.settings.kafka.topic_prefix).dispatch
    client = kafka.consumer(hub.settings, hub.bootstrap)
    try:
        end = kafka.end_offsets(client, topic)[0]
        place = TopicPartition(topic, 0)
        client.assign([place])
        client.seek(place, kafka.begin_offsets(client, topic)[0])
        marks: dict[int, int] = {}
        while client.position(place) < end:
            for record in client.poll(timeout_ms=1_000).get(place, []):
                said = msgspec.json.decode(record.value)
                if said["kind"] == "committed":
                    marks.setdefault(said["manifest"], record.timestamp)
        return marks
    finally:
        client.close()


def _stored(hub: LocalHub) -> tuple[int, int]:
    """How many envelopes the inbox has, and how many different ones."""
    row = (
        open_answers(hub.layout.data)
        .query(
            "select count(*) as stored, count(distinct message_id) as different"
            " from inbox where kind != 'released'"
        )
        .to_pylist()[0]
    )
    return row["stored"], row["different"]


def _percentile(ordered: Sequence[int], share: float) -> int:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@contextmanager
def _control_hub(settings: Settings, data: Path, report: Report) -> Iterator[tuple[LocalHub, int]]:
    """A broker as usual, and in the driver's place one with the control's query."""
    with local_hub(settings, data, parts=("broker",), report=report) as hub:
        port = choose("control", asked=0, remembered=0, taken=())
        code = "import sys; from farpost.bench.control import main; sys.exit(main(sys.argv[1:]))"
        with (hub.layout.logs / "control.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", code, str(data), hub.bootstrap, str(port)],
                stdout=log,
                stderr=log,
            )
        try:
            deadline = time.monotonic() + START_WAIT_S
            while not ask_driver(port).ready:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise StartFailed(f"the control did not start: see {hub.layout.logs}")
                time.sleep(0.2)
            yield hub, process.pid
        finally:
            process.terminate()
            process.wait()
