"""The local stack: which parts there are, and the commands that start, stop and look at them."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farpost import broker, jars, ports, tools
from farpost.parts import MARK, Part, Readiness, Run, kill_leftovers, limit_log
from farpost.places import Layout, make_data_dir
from farpost.state import StackLock, StackState, read_state, running_pid, write_state
from farpost.supervisor import Patience, Step, Supervisor
from schemas.errors import BrokerUnavailable, DeliveryError, StartFailed
from schemas.settings import Settings

TICK_S = 0.25
ASK_TIMEOUT_S = 2.0
DRIVER_START_TIMEOUT_MS = 180_000
GONE_MARGIN_MS = 30_000
PORTS = ("broker", "controller", "driver")
PARTS = ("broker", "driver")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the caller asks of the stack beyond its settings."""

    conf: Path | None = None
    ports: Mapping[str, int]  # name -> port; absent or 0 = any free one
    parts: Collection[str] = PARTS


def up(
    settings: Settings,
    data: Path,
    wish: Wish,
    *,
    report: Callable[[str], None],
    environ: Mapping[str, str] = os.environ,
    on_ready: Callable[[StackState], None] = lambda state: None,
    stop: threading.Event | None = None,
) -> None:
    """Run the stack until it is told to stop; whatever happens, nothing is left running."""
    layout = make_data_dir(data)
    with StackLock(layout), _Signals(stop or threading.Event()) as signals:
        tell = _Reporter(layout, report)
        for name in kill_leftovers(data):
            tell(f"{name}: ended what an earlier run had left")
        state = StackState(
            state="starting",
            run_id=uuid.uuid4().hex[:12],
            pid=os.getpid(),
            ports=_ports(wish, read_state(layout).ports),
        )
        run = Run(run_id=state.run_id, data=data, logs=layout.logs, environ=environ)
        supervisor = Supervisor(
            _items(settings, layout, state.ports, wish),
            run=run,
            patience=Patience(
                stop_timeout_ms=settings.stack.stop_timeout_ms,
                backoff_ms=settings.stack.restart_backoff_ms,
                backoff_max_ms=settings.stack.restart_backoff_max_ms,
            ),
            report=tell,
            publish=_Publisher(layout),
            state=state,
        )
        _supervise(supervisor, layout, signals, tell, on_ready)


def down(layout: Layout, *, patience_ms: int, report: Callable[[str], None]) -> bool:
    """Stop the stack of a directory and wait until all of it is gone; False if none ran."""
    pid = running_pid(layout)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + (patience_ms * len(PARTS) + GONE_MARGIN_MS) / 1000
        while running_pid(layout) == pid:
            if time.monotonic() > deadline:
                raise StartFailed(
                    f"farpost (pid {pid}) does not end: kill it with `kill -9 {pid}`, its parts "
                    "end with it"
                )
            time.sleep(0.05)
    for name in kill_leftovers(layout.data):
        report(f"{name}: ended what was left of it")
    return pid is not None


def status(layout: Layout) -> StackState:
    """The stack as it is now; a supervisor that is gone has no parts that run."""
    state = read_state(layout)
    if running_pid(layout) is None:
        if state.state not in ("stopped", "failed"):
            state.state = "stopped"
            state.reason = state.reason or "it was killed"
        state.pid = None
        for part in state.parts:
            part.state, part.pid = "stopped", None
    newest = newest_manifest(layout)
    state.manifest = max((n for n in (state.manifest, newest) if n is not None), default=None)
    return state


def detach(arguments: list[str], layout: Layout, environ: Mapping[str, str]) -> StackState:
    """Start the stack in the background; returns when it is ready, raises if it ended before."""
    log = layout.logs / "stack.log"
    before = read_state(layout).run_id
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "farpost", "up", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=out,
            env={name: value for name, value in environ.items() if name != MARK},
            start_new_session=True,
        )
    while process.poll() is None:
        state = read_state(layout)
        if state.run_id != before and state.state == "ready":
            return state
        time.sleep(0.1)
    state = read_state(layout)
    reason = state.reason if state.run_id != before else ""
    raise StartFailed(reason or f"the stack ended before it was ready: see {log}")


def bootstrap(settings: Settings, layout: Layout) -> str:
    """Where the log is: as the settings say, else the local broker of this directory."""
    if settings.kafka.bootstrap:
        return settings.kafka.bootstrap
    port = read_state(layout).ports.get("broker")
    if not port:
        raise BrokerUnavailable(
            f"there is no broker in {layout.data} yet: start one with "
            f"`farpost up --data {layout.data}`, or set kafka.bootstrap"
        )
    return f"{broker.HOST}:{port}"


def newest_manifest(layout: Layout) -> int | None:
    """The highest committed number, by the names of the files."""
    names = (path.stem for path in layout.manifests.glob("*.json"))
    return max((int(name) for name in names if name.isdigit()), default=None)


def ask_driver(port: int) -> Readiness:
    """The driver's own answer."""
    said = driver_facts(port)
    if not said:
        return Readiness(ready=False, detail="no answer yet")
    number = said.get("manifest")
    return Readiness(
        ready=said.get("ready") is True,
        detail=str(said.get("reason") or said.get("state") or ""),
        manifest=number if isinstance(number, int) else None,
    )


def driver_facts(port: int) -> dict[str, Any]:
    """What the driver says of itself; nothing if it does not answer."""
    connection = http.client.HTTPConnection(broker.HOST, port, timeout=ASK_TIMEOUT_S)
    try:
        connection.request("GET", "/status")
        said = json.loads(connection.getresponse().read(65_536))
        return said if isinstance(said, dict) else {}
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    finally:
        connection.close()


def _ports(wish: Wish, remembered: Mapping[str, int]) -> dict[str, int]:
    chosen: dict[str, int] = {}
    for name in PORTS:
        chosen[name] = ports.choose(
            name,
            asked=wish.ports.get(name, 0),
            remembered=remembered.get(name, 0),
            taken=chosen.values(),
        )
    return chosen


def _items(
    settings: Settings, layout: Layout, chosen: Mapping[str, int], wish: Wish
) -> list[Part | Step]:
    """The parts in the order in which they need each other."""
    items: list[Part | Step] = []
    address = settings.kafka.bootstrap or f"{broker.HOST}:{chosen['broker']}"
    if "broker" in wish.parts and not settings.kafka.bootstrap:
        items.append(_broker(layout, chosen))
    items.append(Step(name="topics", run=lambda: _topics(settings, address, layout)))
    if "driver" in wish.parts:
        items.append(_driver(layout, chosen["driver"], wish.conf))
    return items


def _broker(layout: Layout, chosen: Mapping[str, int]) -> Part:
    port, directory = chosen["broker"], layout.broker

    def command() -> list[str]:
        java, paths = tools.java().path, jars.jars("broker")
        text = broker.properties(
            directory=directory, port=port, controller_port=chosen["controller"]
        )
        directory.mkdir(exist_ok=True)
        (directory / "server.properties").write_text(text, encoding="utf-8")
        if not broker.is_formatted(directory):
            broker.format_storage(java, paths, directory)
        return broker.command(java, paths, directory)

    def ask() -> Readiness:
        ready = broker.answers(port)
        return Readiness(ready=ready, detail="" if ready else "no answer yet")

    return Part(name="broker", command=command, ask=ask, port=port)


def _topics(settings: Settings, address: str, layout: Layout) -> None:
    from pipelines.policies import put_policy
    from pipelines.topics import ensure_log

    ensure_log(settings, address, layout.data)
    put_policy(layout.data, settings.policy)  # a changed one reaches the shards by the clock


def _driver(layout: Layout, port: int, conf: Path | None) -> Part:
    arguments = ["--data", str(layout.data), "--status-port", str(port)]
    if conf is not None:
        arguments += ["--conf", str(conf)]
    return Part(
        name="driver",
        command=lambda: [sys.executable, "-m", "farpost", "job", "run", *arguments],
        ask=lambda: ask_driver(port),
        port=port,
        start_timeout_ms=DRIVER_START_TIMEOUT_MS,
    )


def _supervise(
    supervisor: Supervisor,
    layout: Layout,
    signals: _Signals,
    tell: Callable[[str], None],
    on_ready: Callable[[StackState], None],
) -> None:
    state, failure = supervisor.state, ""
    try:
        while not signals.stop.is_set():
            before = state.state
            supervisor.tick()
            if before == "starting" and state.state == "ready":
                on_ready(state)
            signals.stop.wait(TICK_S)
        tell("stopping")
    except DeliveryError as error:
        failure = str(error)
        raise
    finally:
        supervisor.stop(hurry=lambda: signals.count > 1)
        state.state = "failed" if failure else "stopped"
        state.reason, state.pid = failure, None
        _Publisher(layout)(state)


class _Signals:
    """Ctrl-C, SIGTERM and a closed terminal ask for an orderly stop; a second one for haste."""

    def __init__(self, stop: threading.Event) -> None:
        self.stop = stop
        self.count = 0

    def __enter__(self) -> _Signals:
        self._before = {
            number: signal.signal(number, self._on_signal)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            if threading.current_thread() is threading.main_thread()
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: object) -> None:
        self.count += 1
        self.stop.set()


class _Reporter:
    """Says a line to the person, and writes it with the time to the stack's own log."""

    def __init__(self, layout: Layout, say: Callable[[str], None]) -> None:
        self._path = layout.logs / "stack.log"
        self._say = say
        limit_log(self._path)

    def __call__(self, text: str) -> None:
        self._say(text)
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime())
        try:
            with self._path.open("a", encoding="utf-8") as log:
                log.write(f"{at} {text}\n")
        except OSError:
            return  # on a full disk the person still sees it


class _Publisher:
    """Writes the state when it has changed."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._last = b""

    def __call__(self, state: StackState) -> None:
        import msgspec

        text = msgspec.json.encode(state)
        if text == self._last:
            return
        try:
            write_state(self._layout, state)
        except OSError:
            return  # tried again with the next tick, because `last` is unchanged
        self._last = text
