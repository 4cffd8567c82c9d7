"""A steady mix of all that devices send, good and bad: the load under which faults are tried."""

import hashlib
import random
import threading
import time
from collections import deque
from contextlib import contextmanager

from pipelines import kafka
from schemas.acks import AckType
from schemas.records import Kind, encode_record, route
from schemas.signals import SignalKind
from tests import factories as make

SENDERS = 5
RECIPIENTS = 120
RECENT = 300
RATE = 100  # records a second
BACKLOG_MAX = 1_000
FLUSH_S = 60
DAY_S = 86_400


class Mix:
    """Frames of made-up devices, drawn from a seed; None instead of a kind means raw bytes."""

    def __init__(self, seed):
        self._random = random.Random(seed)
        self._counters = {}  # lane -> the last counter used
        self._skipped = []  # (lane, counter) left out so far
        self._recent = deque(maxlen=RECENT)  # (envelope, sender, recipient)
        self._number = seed << 32

    def draw(self):
        """What one device does next: a few frames that belong together."""
        moves, weights = zip(*_MOVES.items(), strict=True)
        move = self._random.choices(moves, weights)[0]
        return move(self, int(time.time()))

    # -- envelopes --------------------------------------------------------------------------

    def in_order(self, now_s):
        lane = self._lane()
        return [self._envelope(lane, self._next(lane), now_s)]

    def out_of_order(self, now_s):
        lane = self._lane()
        counters = [self._next(lane) for _ in range(self._random.randrange(2, 5))]
        self._random.shuffle(counters)
        return [self._envelope(lane, counter, now_s) for counter in counters]

    def with_a_gap(self, now_s):
        lane = self._lane()
        self._skipped.append((lane, self._next(lane)))
        return [self._envelope(lane, self._next(lane), now_s)]

    def late(self, now_s):
        if not self._skipped:
            return self.in_order(now_s)
        lane, counter = self._skipped.pop(self._random.randrange(len(self._skipped)))
        return [self._envelope(lane, counter, now_s)]

    def short_lived(self, now_s):
        lane = self._lane()
        lives_s = self._random.randrange(1, 6)
        return [self._envelope(lane, self._next(lane), now_s, expires_at_s=now_s + lives_s)]

    def unordered(self, now_s):
        wait_s = self._random.choice((0, 0, 2, 4))
        not_before_s = now_s + wait_s if wait_s else 0
        return [self._envelope(self._lane(), 0, now_s, not_before_s=not_before_s)]

    def expired(self, now_s):
        lane = self._lane()
        return [self._envelope(lane, self._next(lane), now_s, expires_at_s=now_s - 5)]

    def repeated(self, now_s):
        return [(Kind.ENVELOPE, self._known()[0])] if self._recent else self.in_order(now_s)

    def collision(self, now_s):
        if not self._recent:
            return self.in_order(now_s)
        known, sender, recipient = self._known()
        lane = (sender, recipient, 1)
        other = self._envelope(lane, self._next(lane), now_s, message_id=known[4:20])
        return [other]

    # -- words about envelopes --------------------------------------------------------------

    def receipt(self, now_s):
        return self._acked(now_s, AckType.RECEIPT)

    def read(self, now_s):
        return self._acked(now_s, AckType.READ)

    def receipts(self, now_s):
        if not self._recent:
            return []
        _, sender, recipient = self._known()
        datas = [data for data, *both in self._recent if both == [sender, recipient]]
        batch = make.ack_batch(
            datas[-10:], signer=make.device(recipient), timestamp_ms=now_s * 1000
        )
        return [(Kind.ACK_BATCH, batch)]

    def foreign_receipt(self, now_s):
        """By someone who is not the recipient: signed well, and about nothing he has."""
        return self._acked(now_s, AckType.RECEIPT, signer=make.device(self._recipient()))

    def forged_receipt(self, now_s):
        forged = self._acked(now_s, AckType.RECEIPT)
        return [(kind, body[:-1] + bytes((body[-1] ^ 1,))) for kind, body in forged]

    def signal(self, now_s):
        if not self._recent:
            return []
        data, sender, recipient = self._known()
        kind = self._random.choice(
            (SignalKind.CANCEL, SignalKind.CANCEL, SignalKind.TAKEN, SignalKind.NAK)
        )
        signer = make.device(sender if kind == SignalKind.CANCEL else recipient)
        frame = make.signal(data, kind=kind, signer=signer, time_ms=now_s * 1000)
        return [(Kind.SIGNAL, frame)]

    def passed(self, now_s):
        """VOID or ELSEWHERE, mostly for a counter that was left out."""
        if self._skipped and self._random.random() < 0.8:
            (sender, recipient, session), counter = self._skipped.pop(0)
        else:
            sender, recipient, session = lane = self._lane()
            counter = self._next(lane)
        frame = make.lane_signal(
            kind=self._random.choice((SignalKind.VOID, SignalKind.ELSEWHERE)),
            counter=counter,
            signer=make.device(sender),
            peer=make.device(recipient),
            session=session,
            time_ms=now_s * 1000,
        )
        return [(Kind.SIGNAL, frame)]

    # -- rubbish ----------------------------------------------------------------------------

    def garbage(self, now_s):
        return [(None, self._random.randbytes(self._random.randrange(0, 400)))]

    def truncated(self, now_s):
        [(kind, body)] = self.in_order(now_s)
        return [(None, encode_record(kind, self._random.randrange(64), body[:-20]))]

    def badly_signed(self, now_s):
        [(kind, body)] = self.in_order(now_s)
        at = self._random.randrange(60, len(body))
        return [(kind, body[:at] + bytes((body[at] ^ 4,)) + body[at + 1 :])]

    # -- helpers ----------------------------------------------------------------------------

    def _recipient(self):
        return 100 + self._random.randrange(RECIPIENTS)

    def _lane(self):
        return 1 + self._random.randrange(SENDERS), self._recipient(), self._random.choice((1, 2))

    def _next(self, lane):
        self._counters[lane] = self._counters.get(lane, 0) + 1
        return self._counters[lane]

    def _known(self):
        return self._recent[self._random.randrange(len(self._recent))]

    def _envelope(self, lane, counter, now_s, **fields):
        sender, recipient, session = lane
        self._number += 1
        expires_at_s = now_s + self._random.choice((30, 3_600, 3 * DAY_S, 20 * DAY_S))
        defaults = {"created_at_s": now_s, "expires_at_s": expires_at_s, "counter": counter}
        data = make.envelope(
            sender=make.device(sender),
            recipient=make.device(recipient),
            n=self._number,
            session=session,
            **defaults | fields,
        )
        self._recent.append((data, sender, recipient))
        return Kind.ENVELOPE, data

    def _acked(self, now_s, ack_type, **fields):
        if not self._recent:
            return []
        data, _, recipient = self._known()
        options = {"signer": make.device(recipient), **fields}
        return [(Kind.ACK, make.ack(data, ack_type=ack_type, timestamp_ms=now_s * 1000, **options))]


_MOVES = {
    Mix.in_order: 35,
    Mix.out_of_order: 8,
    Mix.with_a_gap: 3,
    Mix.late: 2,
    Mix.short_lived: 8,
    Mix.unordered: 5,
    Mix.expired: 2,
    Mix.repeated: 6,
    Mix.collision: 3,
    Mix.receipt: 10,
    Mix.read: 4,
    Mix.receipts: 2,
    Mix.foreign_receipt: 2,
    Mix.forged_receipt: 2,
    Mix.signal: 5,
    Mix.passed: 3,
    Mix.garbage: 2,
    Mix.truncated: 1,
    Mix.badly_signed: 2,
}


class Traffic:
    """Feeds the mix at a steady rate until stopped; `acknowledged` is what the log promised.

    While nobody commits it goes on, but not for ever: what waits is what has to be proven later.
    """

    def __init__(self, rig, log, *, rate=RATE, seed):
        self._rig = rig
        self._log = log
        self._rate = rate
        self._mix = Mix(seed)
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._ends = [0] * log.partitions
        self._stop = threading.Event()
        self._pause = threading.Event()
        self._idle = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self.acknowledged = {}  # (partition, offset) -> digest of the value
        self.refused = []
        self.failure = None

    def start(self):
        self._thread.start()
        return self

    def stop(self):
        """Returns once every record was acknowledged or given up."""
        self._stop.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    @contextmanager
    def paused(self):
        """Nothing is under way meanwhile."""
        self._idle.clear()
        self._pause.set()
        try:
            assert self._idle.wait(FLUSH_S), f"the log takes nothing: {self.failure}"
            yield
        finally:
            self._pause.clear()

    def promised(self):
        with self._lock:
            return dict(self.acknowledged)

    def _run(self):
        try:
            producer = kafka.producer(self._rig.settings, self._rig.bootstrap)
            while not self._stop.is_set():
                if self._pause.is_set():
                    producer.flush(timeout=FLUSH_S)
                    self._idle.set()
                    self._stop.wait(0.05)
                elif self._waiting() > BACKLOG_MAX:
                    self._stop.wait(0.2)
                else:
                    self._feed(producer)
            producer.flush(timeout=FLUSH_S)
            producer.close()
        except Exception as error:
            self.failure = error

    def _feed(self, producer):
        """A fifth of a second of it."""
        started, sent = time.monotonic(), 0
        while sent < self._rate / 5:
            for kind, body in self._mix.draw():
                self._send(producer, kind, body)
                sent += 1
        self._stop.wait(max(0, sent / self._rate - (time.monotonic() - started)))

    def _send(self, producer, kind, body):
        if kind is None:
            partition, value = self._random.randrange(self._log.partitions), body
        else:
            partition, value = route(kind, body, self._log.shards, self._log.partitions)
        future = producer.send(self._log.topic, value, partition=partition)
        future.add_callback(self._on_acknowledged, hashlib.sha256(value).digest())
        future.add_errback(self.refused.append)

    def _on_acknowledged(self, digest, place):
        with self._lock:
            self.acknowledged[place.partition, place.offset] = digest
            self._ends[place.partition] = max(self._ends[place.partition], place.offset + 1)

    def _waiting(self):
        """How many records are in the log and not committed, as far as we know."""
        newest = self._rig.store.newest()
        done = newest.next_offsets if newest else [0] * self._log.partitions
        return sum(max(0, end - low) for end, low in zip(self._ends, done, strict=True))
