"""A mailbox's state, and the few moves that every rule about it is made of.

A turn is one input, or the passing of time, applied to one mailbox: it changes the mailbox it was
given and gathers the effects. The rules are in `mailbox` (inputs) and `timers` (time).
"""

from __future__ import annotations

from typing import Any

import msgspec

from pipelines.effects import Effect, Record, Release
from pipelines.lane import Lane, Pending
from schemas.envelope import NEVER
from schemas.policy import Policy

SHORT_HASH = 8
NO_TIMER = 1 << 62

Found = tuple[bytes, Pending]  # the lane's key, and the message in it


class Mailbox(msgspec.Struct, array_like=True):
    """All the hub remembers of one recipient."""

    position: int = 0  # the last one given; never given twice, so a mailbox never leaves the state
    due_at_ms: int = NO_TIMER  # a lower bound: a wake that finds nothing to do sets it right
    lanes: dict[bytes, Lane] = {}  # sender ‖ session_id ‖ priority

    def is_blank(self) -> bool:
        """As good as unknown: it need not be kept."""
        return not self.position and not self.lanes


class Turn(msgspec.Struct):
    owner: bytes
    box: Mailbox
    policy: Policy
    now_ms: int
    effects: list[Effect] = []
    settled: list[tuple[bytes, bytes, bytes]] = []  # (sender, message_id, short_hash)

    def record(self, kind: str, sender: bytes, **fields: Any) -> None:
        self.effects.append(
            Record(kind=kind, sender=sender, recipient=self.owner, at_ms=self.now_ms, **fields)
        )

    def wake(self, at_ms: int) -> None:
        self.box.due_at_ms = min(self.box.due_at_ms, at_ms)

    def lane(self, key: bytes, keep_until_s: int) -> Lane:
        """The lane, made if it is new, and kept at least that long."""
        lane = self.box.lanes.get(key)
        if lane is None:
            lane = self.box.lanes[key] = Lane()
        lane.keep_until_s = max(lane.keep_until_s, keep_until_s)
        if not lane.pending:
            self.wake(lane.keep_until_s * 1000)
        return lane

    def find(self, sender: bytes, message_id: bytes) -> Found | None:
        for key, lane in self.box.lanes.items():
            if key[:32] == sender and message_id in lane.pending:
                return key, lane.pending[message_id]
        return None

    def settle(
        self, sender: bytes, message_id: bytes, short_hash: bytes | None = None
    ) -> Found | None:
        """Let go of a pending message; None if it is not here or is not the one meant."""
        found = self.find(sender, message_id)
        if found is None or short_hash not in (None, found[1].short_hash):
            return None
        self.remove(found[0], message_id)
        return found

    def remove(self, key: bytes, message_id: bytes) -> None:
        """Forget a message; a counter that was held is passed, so its lane does not wait for it."""
        lane = self.box.lanes[key]
        pending = lane.pending.pop(message_id)
        if pending.counter in lane.held and lane.held[pending.counter][0] == message_id:
            del lane.held[pending.counter]
            lane.ahead[pending.counter] = False
        self.settled.append((key[:32], message_id, pending.short_hash))
        if not lane.pending:
            self.wake(lane.keep_until_s * 1000)

    def give_position(self, pending: Pending) -> int:
        self.box.position += 1
        pending.position = self.box.position
        return pending.position

    def drain(self, key: bytes, *, gap_before: bool) -> None:
        """Release all that its lane no longer waits for; the first row tells of a gap before it."""
        released = self.box.lanes[key].drain(self.policy.skipped_ranges_max)
        for message_id in released:
            self.release(key, message_id, gap_before=gap_before)
            gap_before = False

    def release(self, key: bytes, message_id: bytes, *, gap_before: bool) -> None:
        pending = self.box.lanes[key].pending[message_id]
        position = self.give_position(pending)
        sender, session_id, priority = split_key(key)
        self.effects.append(
            Release(
                recipient=self.owner,
                sender=sender,
                message_id=message_id,
                position=position,
                priority=priority,
                session_id=session_id,
                counter=pending.counter,
                at_ms=self.now_ms,
                expires_at_ms=expiry_ms(pending.expires_at_s),
                gap_before=gap_before,
            )
        )
        self.record(
            "released",
            sender,
            message_id=message_id,
            session_id=session_id,
            priority=priority,
            counter=pending.counter,
            position=position,
        )


def lane_key(sender: bytes, session_id: bytes, priority: int) -> bytes:
    return sender + session_id + bytes((priority,))


def split_key(key: bytes) -> tuple[bytes, bytes, int]:
    return key[:32], key[32:64], key[64]


def expiry_ms(expires_at_s: int) -> int | None:
    return None if expires_at_s == NEVER else expires_at_s * 1000
