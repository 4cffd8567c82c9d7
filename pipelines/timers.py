"""What time does to a mailbox: expiry, the end of a wait, a gap given up.

Everything happens at its own time, in order of that time, however late the tick is: so the rows
say when a message expired, and not when somebody noticed.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.effects import Dispatch
from pipelines.turn import NO_TIMER, Turn, expiry_ms, split_key
from schemas.envelope import NEVER

_EXPIRY, _SCHEDULE = 0, 1


def fire(turn: Turn, until_ms: int) -> None:
    """Do all that is due by then, each at its time but none before the turn's, then look ahead."""
    timers = sorted(_timers(turn, until_ms))
    at = 0
    while True:
        gap_ms, gap_key = min(_gaps(turn), default=(NO_TIMER, b""))
        timer_ms = timers[at][0] if at < len(timers) else NO_TIMER
        if min(timer_ms, gap_ms) > until_ms:
            break
        turn.now_ms = max(turn.now_ms, min(timer_ms, gap_ms))
        if timer_ms <= gap_ms:
            _, order, key, message_id = timers[at]
            at += 1
            act = _expire if order == _EXPIRY else _unschedule
            act(turn, key, message_id)
        else:
            _give_up_gap(turn, gap_key)
    turn.now_ms = until_ms
    _forget_lanes(turn)
    turn.box.due_at_ms = _next_due_ms(turn)


def _timers(turn: Turn, until_ms: int) -> Iterator[tuple[int, int, bytes, bytes]]:
    until_s = until_ms // 1000
    for key, lane in turn.box.lanes.items():
        for message_id, pending in lane.pending.items():
            if pending.expires_at_s <= until_s:
                yield pending.expires_at_s * 1000, _EXPIRY, key, message_id
            if 0 < pending.not_before_s <= until_s:
                yield pending.not_before_s * 1000, _SCHEDULE, key, message_id


def _gaps(turn: Turn) -> Iterator[tuple[int, bytes]]:
    for key, lane in turn.box.lanes.items():
        oldest_ms = lane.oldest_held_ms()
        if oldest_ms is not None:
            yield oldest_ms + turn.policy.gap_timeout_ms, key


def _expire(turn: Turn, key: bytes, message_id: bytes) -> None:
    expires_at_s = turn.box.lanes[key].pending[message_id].expires_at_s
    turn.remove(key, message_id)
    turn.record("expired", key[:32], message_id=message_id, expires_at_ms=expiry_ms(expires_at_s))


def _unschedule(turn: Turn, key: bytes, message_id: bytes) -> None:
    pending = turn.box.lanes[key].pending.get(message_id)
    if pending is not None:  # else it expired first
        pending.not_before_s = 0
        turn.release(key, message_id, gap_before=False)


def _give_up_gap(turn: Turn, key: bytes) -> None:
    low, high = turn.box.lanes[key].skip_gap(turn.policy.skipped_ranges_max)
    sender, session_id, priority = split_key(key)
    turn.record(
        "gap", sender, session_id=session_id, priority=priority, counter=low, counter_to=high
    )
    turn.effects.append(
        Dispatch(
            order={
                "kind": "retransmit",
                "sender": sender.hex(),
                "recipient": turn.owner.hex(),
                "session_id": session_id.hex(),
                "priority": priority,
                "counter": low,
                "counter_to": low + turn.policy.retransmit_span,
            }
        )
    )
    turn.drain(key, gap_before=True)


def _forget_lanes(turn: Turn) -> None:
    now_s = turn.now_ms // 1000
    lanes = turn.box.lanes
    for key in [k for k, v in lanes.items() if v.keep_until_s <= now_s and not v.pending]:
        del lanes[key]


def _next_due_ms(turn: Turn) -> int:
    due_s = NEVER
    for lane in turn.box.lanes.values():
        if not lane.pending:
            due_s = min(due_s, lane.keep_until_s)
        for pending in lane.pending.values():
            due_s = min(due_s, pending.expires_at_s, pending.not_before_s or NEVER)
    gap_ms = min(_gaps(turn), default=(NO_TIMER, b""))[0]
    return min(gap_ms, due_s * 1000 if due_s < NEVER else NO_TIMER)
