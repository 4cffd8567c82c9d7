"""The supervisor: starts parts in order, restarts the ones that die, stops them in reverse.

One thread. `tick` looks once at every part and never blocks for long; the caller decides how often
it is called and when to stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from farpost.guard import Guard
from farpost.parts import Child, Part, Readiness, Run, limit_log
from farpost.state import PartState, StackState
from schemas.errors import DeliveryError, StartFailed

START_TRIES_MAX = 3
ASK_INTERVAL_MS = 2_000  # how often a part that is ready is asked again
STEADY_MS = 60_000  # a part that was ready this long starts with a short back-off again
LOG_CHECK_INTERVAL_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something to do once between two parts, such as creating the topics."""

    name: str
    run: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait for what."""

    stop_timeout_ms: int = 30_000
    backoff_ms: int = 500
    backoff_max_ms: int = 30_000

    def backoff(self, failures: int) -> int:
        """The pause before the start that follows this many failures in a row."""
        return min(self.backoff_ms << min(failures - 1, 30), self.backoff_max_ms)


@dataclass(slots=True, kw_only=True)
class _Slot:
    """A part, its process while there is one, and what happened to it."""

    part: Part
    state: PartState
    child: Child | None = None
    failures: int = 0  # in a row
    was_ready: bool = False  # ever
    started_at_ms: int = 0
    ready_at_ms: int = 0
    ask_at_ms: int = 0
    start_at_ms: int = 0
    last: Readiness = field(default_factory=lambda: Readiness(ready=False))


class Supervisor:
    """Holds the processes of one run of the stack."""

    def __init__(
        self,
        items: Sequence[Part | Step],
        *,
        run: Run,
        patience: Patience,
        report: Callable[[str], None],
        publish: Callable[[StackState], None],
        state: StackState,
    ) -> None:
        self._items = list(items)
        self._run = run
        self._patience = patience
        self._report = report
        self._publish = publish
        self._slots = [
            _Slot(part=item, state=PartState(name=item.name, port=item.port))
            for item in items
            if isinstance(item, Part)
        ]
        self._next = 0  # the item that is to start next
        self._logs_at_ms = 0
        self._guard = Guard(run.run_id, run.environ)
        self.state = state
        self.state.parts = [slot.state for slot in self._slots]

    def tick(self) -> None:
        """Look at every part once; StartFailed if the first start of one cannot succeed."""
        now_ms = _now_ms()
        if not self._guard.is_alive():
            self._guard = Guard(self._run.run_id, self._run.environ)
        for slot in self._slots:
            self._look(slot, now_ms)
        self._advance(now_ms)
        self._limit_logs(now_ms)
        self._tell()

    def stop(self, *, hurry: Callable[[], bool] = lambda: False) -> None:
        """Stop all parts, the last one first; `hurry` ends the waiting."""
        self.state.state = "stopping"
        for slot in reversed(self._slots):
            if slot.child is not None:
                self._stop(slot, slot.child, hurry)
            self._set(slot, "stopped")
        self._guard.dismiss()

    def _advance(self, now_ms: int) -> None:
        """Start the next item, if all before it are ready or were."""
        while self._next < len(self._items):
            item = self._items[self._next]
            if not all(slot.was_ready for slot in self._slots if slot.started_at_ms):
                return
            self._next += 1
            if isinstance(item, Step):
                self._report(f"{item.name}: at work")
                item.run()
            else:
                slot = next(slot for slot in self._slots if slot.part is item)
                self._start(slot, now_ms)
                return

    def _start(self, slot: _Slot, now_ms: int) -> None:
        if not slot.was_ready and slot.failures == 0:
            self._report(f"{slot.part.name}: starting")
        slot.started_at_ms = now_ms
        slot.ask_at_ms = now_ms
        try:
            slot.child = Child(slot.part, self._run)
        except (OSError, DeliveryError) as error:
            if not slot.was_ready and isinstance(error, DeliveryError):
                raise
            self._plan(slot, f"could not be started: {error}", now_ms)
            return
        slot.state.pid = slot.child.pid
        self._set(slot, "starting")

    def _look(self, slot: _Slot, now_ms: int) -> None:
        if slot.child is None:
            if slot.start_at_ms and now_ms >= slot.start_at_ms:
                slot.start_at_ms = 0
                self._start(slot, now_ms)
        elif slot.child.ended():
            self._bury(slot, slot.child, now_ms)
        elif now_ms >= slot.ask_at_ms:
            self._ask(slot, slot.child, now_ms)

    def _ask(self, slot: _Slot, child: Child, now_ms: int) -> None:
        slot.last = slot.part.ask()
        if slot.last.manifest is not None:
            self.state.manifest = slot.last.manifest
        if slot.last.ready:
            if slot.state.state != "ready":
                again = slot.state.state == "unready"
                took_s = (now_ms - slot.started_at_ms) / 1000
                how = "ready again" if again else f"ready after {took_s:.1f} s"
                self._report(f"{slot.part.name}: {how}")
                slot.ready_at_ms = now_ms
                slot.was_ready = True
                self._set(slot, "ready")
            slot.ask_at_ms = now_ms + ASK_INTERVAL_MS
            if now_ms - slot.ready_at_ms >= STEADY_MS:
                slot.failures = 0
            return
        if slot.state.state == "ready":
            self._report(f"{slot.part.name}: not ready any more: {slot.last.detail or 'no answer'}")
            self._set(slot, "unready")
        slot.state.reason = slot.last.detail
        if not slot.was_ready and now_ms - slot.started_at_ms > slot.part.start_timeout_ms:
            limit_s = slot.part.start_timeout_ms // 1000
            said = slot.last.detail or child.reason()
            raise StartFailed(
                f"the {slot.part.name} was not ready within {limit_s} s ({said}): "
                f"see {self._run.logs / slot.part.name}.log"
            )

    def _bury(self, slot: _Slot, child: Child, now_ms: int) -> None:
        """End what a dead part left, so that its successor meets nothing of it."""
        child.kill()
        slot.child = None
        slot.state.pid = None
        self._plan(slot, child.reason(), now_ms)

    def _plan(self, slot: _Slot, reason: str, now_ms: int) -> None:
        """Report a part that died by name and reason, and plan its next start."""
        name = slot.part.name
        slot.failures += 1
        if not slot.was_ready and slot.failures >= START_TRIES_MAX:
            raise StartFailed(
                f"the {name} died {slot.failures} times before it was ready ({reason}): "
                f"see {self._run.logs / name}.log"
            )
        slot.state.restarts += 1
        pause_ms = self._patience.backoff(slot.failures)
        slot.start_at_ms = now_ms + pause_ms
        self._report(f"{name}: died ({reason}); starting it again in {pause_ms / 1000:.1f} s")
        self._set(slot, "resting", reason=reason)

    def _stop(self, slot: _Slot, child: Child, hurry: Callable[[], bool]) -> None:
        self._set(slot, "stopping")
        self._publish(self.state)
        child.ask_to_stop()
        deadline_ms = _now_ms() + self._patience.stop_timeout_ms
        while not child.is_gone() and _now_ms() < deadline_ms and not hurry():
            time.sleep(0.05)
        if not child.is_gone():
            self._report(f"{slot.part.name}: did not stop by itself; killed")
        child.kill()
        slot.child = None
        slot.state.pid = None
        self._report(f"{slot.part.name}: stopped")

    def _set(self, slot: _Slot, state: str, *, reason: str = "") -> None:
        slot.state.state = state
        slot.state.since_ms = time.time_ns() // 1_000_000
        slot.state.reason = reason

    def _tell(self) -> None:
        """Publish, and report once that all is ready."""
        all_ready = self._next == len(self._items) and all(
            slot.state.state == "ready" for slot in self._slots
        )
        started = self.state.state != "starting"
        self.state.state = "ready" if all_ready else "unready" if started else "starting"
        self._publish(self.state)

    def _limit_logs(self, now_ms: int) -> None:
        if now_ms >= self._logs_at_ms:
            self._logs_at_ms = now_ms + LOG_CHECK_INTERVAL_MS
            for slot in self._slots:
                limit_log(self._run.logs / f"{slot.part.name}.log")


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
