"""One shard: many mailboxes, one time, one policy. `step` is the whole engine.

Time is data. A record's time is the later of the shard's last time and the record's timestamp in
the log, and whatever is due by then happens before the record is applied. Nothing here reads a
clock, draws a random number or depends on where a batch was cut: the same records give the same
effects, always.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from pipelines import blob
from pipelines.effects import Effect, Quarantine, Snapshot
from pipelines.inputs import (
    Arrived,
    Input,
    MailboxInput,
    PolicyChanged,
    SnapshotAsked,
    Ticked,
)
from pipelines.mailbox import apply, repeat
from pipelines.ring import Ring
from pipelines.timers import fire
from pipelines.turn import NO_TIMER, SHORT_HASH, Mailbox, Turn
from schemas.errors import DeliveryError
from schemas.policy import Policy

CORE_VERSION = 1  # raised with every change that makes the same log give other rows

BROKEN_TIMER_WAIT_MS = 3_600_000
EMPTY_BOX = blob.encode_box(Mailbox())


class Shard:
    """The state of one shard while a call works on it; `blob` turns it into bytes and back."""

    def __init__(self, header: blob.Header) -> None:
        self.header = header
        self.policy = Policy.from_json(header.policy) if header.policy else Policy()
        self.recent = Ring(header.recent, self.policy.recent_ids_max)
        self._touched: dict[bytes, Mailbox] = {}
        self._due_at_ms = min((due for due, _ in header.boxes.values()), default=NO_TIMER)

    # -- the engine -------------------------------------------------------------------------

    def step(self, timestamp_ms: int, item: Input | DeliveryError, value: bytes) -> list[Effect]:
        """Apply one record: first what is due, then the record, or a quarantine row for it."""
        since_ms = self.header.time_ms
        self.header.time_ms = max(since_ms, timestamp_ms)
        effects = self._fire(since_ms, self.header.time_ms)
        if isinstance(item, DeliveryError):
            return [*effects, self._quarantine(item, value)]
        if isinstance(item, Ticked):
            return effects
        if isinstance(item, PolicyChanged):
            return [*effects, *self._change_policy(item, value)]
        if isinstance(item, SnapshotAsked):
            return [*effects, self._snapshot(item)]
        return [*effects, *self._apply(item, value)]

    def wake_at_ms(self) -> int | None:
        """When the shard wants its next tick; None if nothing waits for time."""
        due = [due for due, _ in self.header.boxes.values()]
        due += [box.due_at_ms for box in self._touched.values()]
        soonest_ms = min(due, default=NO_TIMER)
        return soonest_ms if soonest_ms < NO_TIMER else None

    def save(self) -> bytes:
        """The state as bytes; the shard can go on afterwards."""
        boxes = self.header.boxes
        grown = False
        for owner, box in self._touched.items():
            if box.is_blank():  # a refusal alone leaves no trace, nor a lane once forgotten
                boxes.pop(owner, None)
            else:
                grown |= owner not in boxes
                boxes[owner] = (box.due_at_ms, msgspec.Raw(blob.encode_box(box)))
        self._touched.clear()
        if grown:  # sorted, so that the bytes do not depend on where batches are cut
            self.header.boxes = dict(sorted(boxes.items()))
        self.header.recent = self.recent.to_bytes()
        return blob.encode(self.header)

    # -- inputs -----------------------------------------------------------------------------

    def _apply(self, item: MailboxInput, value: bytes) -> list[Effect]:
        def work(turn: Turn) -> None:
            if isinstance(item, Arrived):
                sender, message_id = item.envelope.sender, item.envelope.message_id
                known = self.recent.get(item.mailbox, sender, message_id)
                if known is not None and turn.find(sender, message_id) is None:
                    repeat(turn, item, same=known == item.envelope_hash[:SHORT_HASH])
                    return
            apply(item, turn)

        return self._turn(item.mailbox, self.header.time_ms, work, value)

    def _turn(
        self, owner: bytes, now_ms: int, work: Callable[[Turn], None], value: bytes
    ) -> list[Effect]:
        """Do `work` on the mailbox; if it fails, neither its state nor its effects remain."""
        saved, box = self._touch(owner)
        turn = Turn(owner=owner, box=box, policy=self.policy, now_ms=now_ms)
        try:
            work(turn)
        except Exception as error:  # our own bug costs this record, never the batch
            self._touched[owner] = blob.decode_box(saved)
            return [self._quarantine(broken(error, value), value)]
        for sender, message_id, short_hash in turn.settled:
            self.recent.add(owner, sender, message_id, short_hash)
        self._due_at_ms = min(self._due_at_ms, box.due_at_ms)
        return turn.effects

    def _touch(self, owner: bytes) -> tuple[bytes, Mailbox]:
        """The mailbox to work on, and its bytes as they were."""
        if owner in self._touched:
            box = self._touched[owner]
            return blob.encode_box(box), box
        saved = EMPTY_BOX
        if owner in self.header.boxes:
            raw = self.header.boxes[owner][1]
            saved = bytes(raw)
            self.header.boxes[owner] = (NO_TIMER, raw)  # its timer is the touched one's now
        box = self._touched[owner] = blob.decode_box(saved)
        return saved, box

    # -- time -------------------------------------------------------------------------------

    def _fire(self, since_ms: int, now_ms: int) -> list[Effect]:
        """Fire every mailbox that is due, in order of due time, then of address."""
        if now_ms < self._due_at_ms:
            return []
        due = [(at, owner) for owner, (at, _) in self.header.boxes.items() if at <= now_ms]
        due += [(b.due_at_ms, o) for o, b in self._touched.items() if b.due_at_ms <= now_ms]
        effects: list[Effect] = []
        for _, owner in sorted(due):
            fired = self._turn(owner, since_ms, partial(fire, until_ms=now_ms), b"")
            if self._touched[owner].due_at_ms <= now_ms:  # it failed: leave it alone for a while
                self._touched[owner].due_at_ms = now_ms + BROKEN_TIMER_WAIT_MS
            effects += fired
        self._due_at_ms = self.wake_at_ms() or NO_TIMER
        return effects

    # -- records about the shard itself -----------------------------------------------------

    def _change_policy(self, item: PolicyChanged, value: bytes) -> list[Effect]:
        if item.number <= self.header.policy_number:
            return []  # sent again to a shard that seemed to lag
        try:
            policy = Policy.from_json(item.body)
        except DeliveryError as error:
            return [self._quarantine(error, value)]
        sooner = policy.gap_timeout_ms < self.policy.gap_timeout_ms
        self.policy = policy
        self.recent.resize(policy.recent_ids_max)
        self.header.policy, self.header.policy_number = item.body, item.number
        if sooner:
            self._wake_all()
        return []

    def _wake_all(self) -> None:
        """Let every mailbox look at its timers anew with the next record."""
        for owner in [*self.header.boxes]:
            self._touch(owner)
        for box in self._touched.values():
            if not box.is_blank():
                box.due_at_ms = self._due_at_ms = self.header.time_ms

    def _snapshot(self, item: SnapshotAsked) -> Effect:
        return Snapshot(round=item.round, at_ms=self.header.time_ms, blob=self.save())

    def _quarantine(self, error: DeliveryError, value: bytes) -> Effect:
        return Quarantine(
            code=error.code,
            reason=str(error),
            record_kind=value[0] if value else None,
            at_ms=self.header.time_ms,
            value=value,
        )


def broken(error: Exception, value: bytes) -> DeliveryError:
    """What to tell of our own bug: it met a record, or a timer if there is no value."""
    what = "this record could not be applied" if value else "what was due could not be done"
    then = "then send the message again" if value else "it is tried again in an hour"
    return DeliveryError(
        f"{what} ({type(error).__name__}: {error}); nothing of it was kept:"
        f" report it with this row, {then}"
    )
