"""A whole hub in a directory of its own, for as long as a `with` block lasts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from farpost.feed import Feed
from farpost.places import Layout
from farpost.stack import PARTS, Wish, bootstrap, up
from farpost.state import StackState, read_state
from pipelines.topics import KnownLog, read_known_log
from schemas.errors import StartFailed
from schemas.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalHub:
    """A hub that runs, and the ways to it."""

    settings: Settings
    layout: Layout
    bootstrap: str
    log: KnownLog

    def feed(self, *, linger_ms: int = 0) -> Feed:
        return Feed(self.settings, self.bootstrap, self.log, linger_ms=linger_ms)

    def state(self) -> StackState:
        return read_state(self.layout)


@contextmanager
def local_hub(
    settings: Settings,
    data: Path,
    *,
    conf: Path | None = None,
    parts: tuple[str, ...] = PARTS,
    report: Callable[[str], None] = lambda text: None,
) -> Iterator[LocalHub]:
    """Start the stack, hand it over when it is ready, and stop all of it whatever happens."""
    ready, stop = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1, thread_name_prefix="stack") as threads:
        running = threads.submit(
            up,
            settings,
            data,
            Wish(conf=conf, ports={}, parts=parts),
            report=report,
            on_ready=lambda state: ready.set(),
            stop=stop,
        )
        running.add_done_callback(lambda _: ready.set())
        try:
            ready.wait()
            if running.done():
                running.result()
                raise StartFailed("the hub ended before it was ready")
            layout = Layout(data)
            log = read_known_log(data)
            assert log is not None, "a hub that is ready has a log"
            yield LocalHub(
                settings=settings, layout=layout, bootstrap=bootstrap(settings, layout), log=log
            )
        finally:
            stop.set()
        running.result()
