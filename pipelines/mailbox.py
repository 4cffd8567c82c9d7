"""What each input does to a mailbox: accept, hold, refuse, settle, take back.

Every envelope gets exactly one first outcome here, as one row of history:

    stored      it has a position and may be fetched
    held        an earlier counter of its lane is missing; it waits for it, at most gap_timeout_ms
    scheduled   its not_before has not come yet
    duplicate   the same envelope was here before
    refused     with a reason; nothing of it is kept
"""

from __future__ import annotations

from functools import singledispatch

from pipelines.effects import Bury, Store
from pipelines.inputs import Acked, Arrived, Cancelled, CounterPassed, MailboxInput, Noted, Taken
from pipelines.lane import Lane, Pending
from pipelines.turn import SHORT_HASH, Turn, expiry_ms, lane_key
from schemas.envelope import NEVER, Envelope, MessageClass


@singledispatch
def apply(item: MailboxInput, turn: Turn) -> None:
    """Apply one input to the turn's mailbox."""
    raise AssertionError(item)


@apply.register
def _arrived(item: Arrived, turn: Turn) -> None:
    envelope = item.envelope
    found = turn.find(envelope.sender, envelope.message_id)
    if found is not None:
        repeat(turn, item, same=found[1].short_hash == item.envelope_hash[:SHORT_HASH])
        return
    reason = _refusal(turn, envelope)
    if reason is not None:
        _refuse(turn, item, reason)
    elif envelope.counter == 0:
        _accept_unordered(turn, item)
    else:
        _accept_ordered(turn, item)


def repeat(turn: Turn, item: Arrived, *, same: bool) -> None:
    """The id is known: the same envelope again is harmless, another one under it is an attack."""
    if same:
        _outcome(turn, item, "duplicate")
    else:
        _refuse(turn, item, "collision", security=True)


def _refusal(turn: Turn, envelope: Envelope) -> str | None:
    """Why the hub will not take this envelope, whatever its lane says; None if it will."""
    policy = turn.policy
    if envelope.message_class == MessageClass.LIVE:
        return "live_only"
    if envelope.counter and envelope.not_before_s * 1000 > turn.now_ms:
        return "scheduled_in_lane"
    remaining_ms = envelope.expires_at_s * 1000 - turn.now_ms
    if remaining_ms <= 0:
        return "expired"
    if remaining_ms < (policy.expiry_remaining_min_s - policy.expiry_tolerance_s) * 1000:
        return "ttl_too_short"
    if remaining_ms > policy.expiry_ahead_max_s * 1000:
        return "ttl_too_long"
    return None


def _accept_unordered(turn: Turn, item: Arrived) -> None:
    envelope = item.envelope
    lane = turn.lane(_key(envelope), _keep_until_s(turn, envelope))
    pending = _keep(turn, lane, item)
    if envelope.not_before_s * 1000 > turn.now_ms:
        pending.not_before_s = envelope.not_before_s
        turn.wake(envelope.not_before_s * 1000)
        _store(turn, item, "scheduled", pending)
    else:
        turn.give_position(pending)
        _store(turn, item, "stored", pending)


def _accept_ordered(turn: Turn, item: Arrived) -> None:
    envelope, counter = item.envelope, item.envelope.counter
    key = _key(envelope)
    lane = turn.box.lanes.get(key) or Lane()
    baseline = lane.is_new() and counter > lane.expected + turn.policy.gap_max
    if baseline:
        lane.expected = counter
    reason = _lane_refusal(turn, lane, counter)
    if reason is not None:
        _refuse(turn, item, reason, security=reason in ("counter_taken", "replay"))
        return
    turn.box.lanes[key] = lane
    turn.lane(key, _keep_until_s(turn, envelope))
    pending = _keep(turn, lane, item)
    if counter > lane.expected:
        lane.ahead.pop(counter, None)
        lane.held[counter] = (envelope.message_id, turn.now_ms)
        turn.wake(turn.now_ms + turn.policy.gap_timeout_ms)
        _store(turn, item, "held", pending)
        return
    turn.give_position(pending)
    _store(turn, item, "stored", pending, gap_before=baseline)
    if counter == lane.expected:
        lane.expected += 1
        turn.drain(key, gap_before=False)


def _lane_refusal(turn: Turn, lane: Lane, counter: int) -> str | None:
    """Why this counter cannot join its lane; a skipped counter is used up by asking."""
    if counter < lane.expected:
        taken = lane.take_skipped(counter, turn.policy.skipped_ranges_max)
        return None if taken else "replay"
    if counter > lane.expected + turn.policy.gap_max:
        return "gap_too_large"
    if lane.ahead.get(counter) is False:
        return "replay"  # passed for good, though the lane has not come to it yet
    if counter in lane.held:
        return "counter_taken"
    if counter > lane.expected and len(lane.held) >= turn.policy.held_max:
        return "too_many_held"
    return None


def _keep(turn: Turn, lane: Lane, item: Arrived) -> Pending:
    cap_s = turn.now_ms // 1000 + turn.policy.expiry_cap_s
    expires_at_s = min(item.envelope.expires_at_s, cap_s)
    pending = Pending(item.envelope_hash[:SHORT_HASH], expires_at_s, item.envelope.counter, 0, 0)
    lane.pending[item.envelope.message_id] = pending
    turn.wake(expires_at_s * 1000)
    return pending


def _keep_until_s(turn: Turn, envelope: Envelope) -> int:
    """How long the lane's counters must be remembered, so that no envelope of it comes again."""
    if envelope.expires_at_s == NEVER:
        return turn.now_ms // 1000 + turn.policy.never_lane_idle_s
    return envelope.expires_at_s


@apply.register
def _acked(item: Acked, turn: Turn) -> None:
    proof: bytes | None = item.proof
    for message_id in item.message_ids:
        found = turn.settle(item.sender, message_id)
        turn.record(
            "read" if item.read else "delivered",
            item.sender,
            message_id=message_id,
            known=found is not None,
            said_at_ms=item.said_at_ms,
            proof=proof,
        )
        proof = None  # the rows of a batch share the proof of its first row


@apply.register
def _taken(item: Taken, turn: Turn) -> None:
    _let_go(turn, item, "taken")


@apply.register
def _cancelled(item: Cancelled, turn: Turn) -> None:
    _let_go(turn, item, "cancelled")


def _let_go(turn: Turn, item: Taken | Cancelled, kind: str) -> None:
    found = turn.settle(item.sender, item.message_id, item.short_hash)
    turn.record(
        kind,
        item.sender,
        message_id=item.message_id,
        known=found is not None,
        said_at_ms=item.said_at_ms,
        proof=item.proof,
    )
    if found is not None and kind == "cancelled":
        turn.effects.append(
            Bury(
                recipient=turn.owner,
                sender=item.sender,
                message_id=item.message_id,
                reason=kind,
                category=kind,
                at_ms=turn.now_ms,
                expires_at_ms=expiry_ms(found[1].expires_at_s),
            )
        )


@apply.register
def _counter_passed(item: CounterPassed, turn: Turn) -> None:
    key = lane_key(item.sender, item.session_id, item.priority)
    lane = turn.box.lanes.get(key) or Lane()
    reason = None
    if item.counter > lane.expected + turn.policy.gap_max:
        reason = "gap_too_large"
    elif item.counter in lane.held:
        reason = "counter_taken"  # the message itself is here: it wins over what was said of it
    else:
        turn.box.lanes[key] = lane
        turn.lane(key, turn.now_ms // 1000 + turn.policy.expiry_cap_s)
        _pass_counter(turn, lane, item)
    turn.record(
        "elsewhere" if item.elsewhere else "void",
        item.sender,
        reason=reason,
        session_id=item.session_id,
        priority=item.priority,
        counter=item.counter,
        said_at_ms=item.said_at_ms,
        proof=item.proof,
    )
    if reason is None:
        turn.drain(key, gap_before=False)


def _pass_counter(turn: Turn, lane: Lane, item: CounterPassed) -> None:
    if item.counter >= lane.expected:  # what was passed for good stays so
        lane.ahead[item.counter] = item.elsewhere and lane.ahead.get(item.counter, True)
    elif not item.elsewhere:
        lane.take_skipped(item.counter, turn.policy.skipped_ranges_max)


@apply.register
def _noted(item: Noted, turn: Turn) -> None:
    turn.record(
        item.kind,
        item.sender,
        message_id=item.message_id,
        reason=str(item.argument),
        known=turn.find(item.sender, item.message_id) is not None,
        said_at_ms=item.said_at_ms,
        proof=item.proof,
    )


def _refuse(turn: Turn, item: Arrived, reason: str, *, security: bool = False) -> None:
    _outcome(turn, item, "refused", reason=reason, security=security)


def _store(
    turn: Turn, item: Arrived, kind: str, pending: Pending, *, gap_before: bool = False
) -> None:
    envelope = item.envelope
    position = pending.position or None
    expires_at_ms = expiry_ms(pending.expires_at_s)
    turn.effects.append(
        Store(
            recipient=turn.owner,
            sender=envelope.sender,
            message_id=envelope.message_id,
            kind=kind,
            position=position,
            priority=envelope.priority,
            message_class=envelope.message_class,
            session_id=envelope.session_id,
            counter=envelope.counter,
            at_ms=turn.now_ms,
            expires_at_ms=expires_at_ms,
            not_before_ms=envelope.not_before_s * 1000 or None,
            gap_before=gap_before,
            envelope=item.raw,
            envelope_hash=item.envelope_hash,
        )
    )
    _outcome(turn, item, kind, position=position, expires_at_ms=expires_at_ms)


def _outcome(
    turn: Turn,
    item: Arrived,
    kind: str,
    *,
    reason: str | None = None,
    security: bool = False,
    position: int | None = None,
    expires_at_ms: int | None = None,
) -> None:
    envelope = item.envelope
    turn.record(
        kind,
        envelope.sender,
        message_id=envelope.message_id,
        reason=reason,
        security=security,
        session_id=envelope.session_id,
        priority=envelope.priority,
        counter=envelope.counter,
        position=position,
        expires_at_ms=expires_at_ms,
    )


def _key(envelope: Envelope) -> bytes:
    return lane_key(envelope.sender, envelope.session_id, envelope.priority)
