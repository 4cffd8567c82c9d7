"""The demonstration: two made-up devices, a real hub on this machine, and a verdict.

Every step puts signed bytes into the log, waits until the hub has committed what it made of them,
and compares that with what it should be.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from nacl.signing import SigningKey

from farpost.answers import open_answers
from farpost.feed import Feed, Place
from pipelines.manifest import ManifestStore
from schemas.acks import AckType, sign_ack, sign_batch
from schemas.envelope import MessageClass, envelope_hash, seal_signed
from schemas.records import Kind
from schemas.signals import SignalKind, sign_signal

COMMIT_WAIT_S = 30.0
EXPIRY_S = 6
HOUR_S = 3_600

Show = Callable[[str], None]


@dataclass(slots=True)
class Outcome:
    """What should have become of a record, and what did."""

    label: str
    expected: str
    found: str

    @property
    def good(self) -> bool:
        return self.found == self.expected


@dataclass(slots=True)
class Device:
    """A made-up device with a lane of its own to the other one."""

    name: str
    key: SigningKey = field(default_factory=SigningKey.generate, repr=False)
    session_id: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    @property
    def address(self) -> bytes:
        return bytes(self.key.verify_key)

    def envelope(
        self,
        to: Device,
        counter: int,
        *,
        message_id: bytes | None = None,
        lives_s: int = 24 * HOUR_S,
    ) -> bytes:
        """A signed envelope; its payload is noise of the size a sealed text would have."""
        now_s = int(time.time())
        return seal_signed(
            key=self.key,
            message_class=MessageClass.STORED,
            priority=1,
            flags=0,
            suite=0,
            message_id=message_id or secrets.token_bytes(16),
            recipient=to.address,
            session_id=self.session_id,
            counter=counter,
            created_at_s=now_s // HOUR_S * HOUR_S,
            expires_at_s=now_s + lives_s,
            not_before_s=0,
            collapse_tag=0,
            payload=secrets.token_bytes(816),
        )


class Story:
    """Tells the steps one after the other; `outcomes` has what came of each."""

    def __init__(self, data: Path, feed: Feed, show: Show) -> None:
        self._data = data
        self._feed = feed
        self._show = show
        self.alice, self.bob, self.eve = Device("alice"), Device("bob"), Device("eve")
        self.outcomes: list[Outcome] = []
        self.told: bytes = b""  # the message whose trace is worth reading

    def tell(self) -> None:
        self._in_order()
        self._out_of_order()
        self._repeats()
        self._expiry()
        self._acks()
        self._bad_input()

    def _in_order(self) -> None:
        self._show("Three messages in order: each may be fetched at once.")
        self.first = [self.alice.envelope(self.bob, counter) for counter in (1, 2, 3)]
        for number, envelope in enumerate(self.first, 1):
            self._put(f"alice → bob, counter {number}", Kind.ENVELOPE, envelope, "stored")

    def _out_of_order(self) -> None:
        self._show("Counter 5 arrives before counter 4: it is held, and released in order.")
        early, late = self.alice.envelope(self.bob, 5), self.alice.envelope(self.bob, 4)
        self._put("alice → bob, counter 5", Kind.ENVELOPE, early, "held")
        self._put("alice → bob, counter 4", Kind.ENVELOPE, late, "stored, released")
        self.told = message_id(early)

    def _repeats(self) -> None:
        self._show("The same envelope again is a duplicate; other content under its id is not.")
        second = self.first[1]
        forged = self.alice.envelope(self.bob, 6, message_id=message_id(second))
        self._put("counter 2 once more", Kind.ENVELOPE, second, "duplicate")
        self._put("other content, same id", Kind.ENVELOPE, forged, "refused (collision)")

    def _expiry(self) -> None:
        self._show(f"A message that lives {EXPIRY_S} s and is not fetched: it expires on time.")
        short = self.alice.envelope(self.bob, 6, lives_s=EXPIRY_S)
        self._put("alice → bob, counter 6", Kind.ENVELOPE, short, "stored")
        self._await("… and nobody came for it", message_id(short), "expired")

    def _acks(self) -> None:
        self._show("Bob acknowledges: one receipt, two in a batch, one read; alice takes one back.")
        one, two, three = (message_id(envelope) for envelope in self.first)
        now_ms = time.time_ns() // 1_000_000
        ack = partial(sign_ack, key=self.bob.key, sender=self.alice.address, timestamp_ms=now_ms)
        batch = sign_batch(
            key=self.bob.key,
            sender=self.alice.address,
            timestamp_ms=now_ms,
            ack_type=AckType.RECEIPT,
            message_ids=(two, three),
        )
        receipt = ack(ack_type=AckType.RECEIPT, message_id=one)
        self._put("receipt for counter 1", Kind.ACK, receipt, "delivered")
        self._put("receipts for 2 and 3", Kind.ACK_BATCH, batch, "delivered, delivered")
        read = ack(ack_type=AckType.READ, message_id=one)
        self._put("read: counter 1", Kind.ACK, read, "read")
        extra = self.alice.envelope(self.bob, 7)
        self._put("alice → bob, counter 7", Kind.ENVELOPE, extra, "stored")
        cancel = sign_signal(
            key=self.alice.key,
            kind=SignalKind.CANCEL,
            peer=self.bob.address,
            message_id=message_id(extra),
            hash_prefix=envelope_hash(extra)[:16],
            time_ms=now_ms,
        )
        self._put("… and takes it back", Kind.SIGNAL, cancel, "cancelled")

    def _bad_input(self) -> None:
        self._show("What nobody signed is set aside with a reason; the stream goes on.")
        now_ms = time.time_ns() // 1_000_000
        forged = sign_ack(
            key=self.eve.key,
            ack_type=AckType.RECEIPT,
            message_id=self.told,
            sender=self.alice.address,
            timestamp_ms=now_ms,
        )
        forged = self.bob.address + forged[32:]  # eve's signature under bob's name
        self._put("a receipt that eve forged", Kind.ACK, forged, "quarantined (bad_signature)")
        noise = self._feed.put_raw(0, secrets.token_bytes(40))
        self._check("40 bytes of noise", noise, "quarantined (bad_record)")

    # -- one record -------------------------------------------------------------------------

    def _put(self, label: str, kind: Kind, body: bytes, expected: str) -> None:
        self._check(label, self._feed.put(kind, body), expected)

    def _check(self, label: str, place: Place, expected: str) -> None:
        manifest = self._committed(place)
        took_s = time.time() - place.at_ms / 1000
        found = self._found(place) if manifest else "not committed in time"
        self._note(label, expected, found, f"manifest {manifest}, {took_s:.1f} s")

    def _await(self, label: str, wanted_id: bytes, expected: str) -> None:
        where = f"message_id = '{wanted_id.hex()}' and kind = '{expected}'"
        sql = f"select at_ms from history where {where}"  # noqa: S608 - own words
        deadline = time.monotonic() + COMMIT_WAIT_S
        while time.monotonic() < deadline:
            rows = open_answers(self._data).query(sql).to_pylist()
            if rows:
                self._note(label, expected, expected, "by a tick of the hub's clock")
                return
            time.sleep(0.2)
        self._note(label, expected, "nothing", "")

    def _committed(self, place: Place) -> int | None:
        """The manifest that has the record; None if none came in time."""
        store = ManifestStore(self._data / "manifests")
        deadline = time.monotonic() + COMMIT_WAIT_S
        while time.monotonic() < deadline:
            manifest = store.newest()
            if manifest and manifest.next_offsets[place.partition] > place.offset:
                return manifest.number
            time.sleep(0.05)
        return None

    def _found(self, place: Place) -> str:
        where = f'where "partition" = {place.partition} and "offset" = {place.offset}'
        answers = open_answers(self._data)
        rows = answers.query(
            f'select kind, reason, "index" from history {where}'  # noqa: S608 - own numbers
            f" union all select 'quarantined', code, \"index\" from quarantine {where}"
        ).to_pylist()
        rows.sort(key=lambda row: row["index"])
        words = [f"{r['kind']} ({r['reason']})" if r["reason"] else r["kind"] for r in rows]
        return ", ".join(words) or "nothing"

    def _note(self, label: str, expected: str, found: str, where: str) -> None:
        outcome = Outcome(label, expected, found)
        self.outcomes.append(outcome)
        mark = "✓" if outcome.good else "✗"
        tail = "" if outcome.good else f" — should be: {expected}"
        self._show(f"  {mark} {label:<28} {found}{tail}  [{where}]")


def message_id(envelope: bytes) -> bytes:
    """The id of an envelope of ours."""
    return envelope[4:20]


def failed(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if not outcome.good]
