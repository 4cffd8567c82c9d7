"""Made-up logs: a seed draws moves of devices and of the hub, `build` turns them into records.

Few senders, recipients and sessions, small limits and short lives, so that everything meets.
"""

import random
from functools import lru_cache

from hypothesis import strategies as st

from schemas.acks import AckType, sign_ack, sign_batch
from schemas.envelope import Envelope, envelope_hash
from schemas.policy import Policy
from schemas.records import Kind, encode_policy, encode_record, encode_snapshot, encode_tick
from schemas.signals import SignalKind, sign_signal
from tests.factories import NOW_MS, address, device, envelope, message_id, session_id

SMALL = {
    "expiry_cap_s": 3_600,
    "expiry_remaining_min_s": 2,
    "expiry_tolerance_s": 1,
    "gap_max": 5,
    "held_max": 3,
    "gap_timeout_ms": 10_000,
    "recent_ids_max": 8,
    "skipped_ranges_max": 2,
}
POLICIES = (
    Policy(**SMALL),
    Policy(**{**SMALL, "gap_timeout_ms": 2_000, "recent_ids_max": 2, "held_max": 2}),
    Policy(**{**SMALL, "gap_timeout_ms": 40_000, "gap_max": 9, "recent_ids_max": 0}),
    Policy(**{**SMALL, "skipped_ranges_max": 1, "expiry_cap_s": 7_200}),
)
HELD_MAX = 3
RANGES_MAX = 2
SENDERS = (device(1), device(2))
RECIPIENTS = (device(11), device(12), device(13))
KEYS = {address(key): key for key in (*SENDERS, *RECIPIENTS)}
LIVES_S = (3, 15, 40, 600, 5_000, 20 * 86_400)

WAITS_MS = (
    *(0, 0, 0, 1, 300, 300, 900, 900, 1_700, 4_000, 11_000),
    *(-2_500, -60_000, 70_000, 4_000_000),
)
STEPS = (1, 1, 1, 1, 1, 1, 2, 2, 3, 5, 6, 7, -1, -1, -2, -3, 0)
VARIANTS = ("plain",) * 8 + ("other payload", "other id")
LANE_SIGNALS = (SignalKind.VOID, SignalKind.ELSEWHERE)
SIGNALS = tuple(kind for kind in SignalKind if kind < SignalKind.VOID)
WEIGHTS = {
    "send": 40,
    "again": 10,
    "ack": 12,
    "foreign ack": 2,
    "batch": 3,
    "signal": 8,
    "lane": 6,
    "tick": 6,
    "policy": 2,
    "snapshot": 3,
    "garbage": 2,
    "flip": 3,
    "cut": 2,
}


def random_moves(seed, size):
    """`size` moves, each with the time that passed before it; a smaller size is a prefix."""
    rng = random.Random(seed)
    return [(rng.choice(WAITS_MS), _random_move(rng)) for _ in range(size)]


# Hypothesis shrinks a failure to the fewest moves of its seed.
moves = st.builds(random_moves, seed=st.integers(0, 2**32), size=st.integers(1, 60))


def _random_move(rng):
    (name,) = rng.choices([*WEIGHTS], [*WEIGHTS.values()])
    lane = (
        rng.choice((0, 0, 1)),
        rng.choice((0, 0, 1)),
        rng.choice((1, 1, 1, 2)),
        rng.choice((1, 2)),
    )
    pick, right = rng.randrange(1_000), rng.random() < 0.8
    fields = {
        "send": (
            lane,
            rng.choice(STEPS),
            rng.choice(VARIANTS),
            rng.choice(LIVES_S),
            rng.choice((0, 0, 5, 30)),
        ),
        "again": (pick,),
        "ack": (pick, rng.choice((2, 2, 2, 2, 3, 3, 1))),
        "foreign ack": (pick,),
        "batch": ([pick, *(pick + rng.randrange(4) for _ in range(rng.randrange(4)))],),
        "signal": (pick, rng.choice(SIGNALS), right),
        "lane": (lane, rng.choice(LANE_SIGNALS), rng.choice((1, 1, 2, 3, 5, 7, -1, -2))),
        "policy": (rng.randrange(7), rng.randrange(len(POLICIES))),
        "garbage": (rng.randbytes(rng.randrange(12)),),
        "flip": (pick, rng.randrange(10_000)),
        "cut": (pick, rng.randrange(400)),
    }
    return (name, *fields.get(name, ()))


def build(drawn):
    """The log of these moves: (offset, timestamp_ms, value) for shard 0 of 1."""
    return _Builder().build(drawn)


class _Builder:
    def __init__(self):
        self.now_ms = NOW_MS
        self.log = []
        self.sent = {}  # what was sent -> its bytes
        self.counters = {}  # lane -> the last counter its sender used

    def build(self, drawn):
        self._append(Kind.POLICY, encode_policy(1, 1, POLICIES[0].to_json()))
        for wait_ms, (name, *fields) in drawn:
            self.now_ms += wait_ms
            getattr(self, "_" + name.replace(" ", "_"))(*fields)
        return self.log

    def _append(self, kind, body):
        self._value(encode_record(kind, 0, body))

    def _value(self, value):
        self.log.append((len(self.log), self.now_ms, value))

    def _pick(self, pick):
        sent = [*self.sent.values()]
        return sent[pick % len(sent)] if sent else _envelope(SENDERS[0], RECIPIENTS[0], 1, 1, 1)

    # -- devices --------------------------------------------------------------------------

    def _send(self, lane, step, variant, life_s, later_s):
        sender, recipient, session, priority = lane
        counter = 0
        if step:
            counter = max(1, self.counters.get(lane, 0) + step)
            self.counters[lane] = max(counter, self.counters.get(lane, 0))
        key = (lane, counter or (0, later_s, life_s), variant)
        if key not in self.sent:
            now_s = max(self.now_ms, NOW_MS) // 1000
            self.sent[key] = _envelope(
                SENDERS[sender],
                RECIPIENTS[recipient],
                session,
                priority,
                counter,
                variant=variant,
                number=hash(key[:2]) % 10**6,
                expires_at_s=now_s + life_s,
                not_before_s=now_s + later_s if later_s and not counter else 0,
            )
        self._append(Kind.ENVELOPE, self.sent[key])

    def _again(self, pick):
        self._value(self.log[pick % len(self.log)][2])

    def _ack(self, pick, ack_type):
        self._append(Kind.ACK, _ack(self._pick(pick), None, ack_type))

    def _foreign_ack(self, pick):
        self._append(Kind.ACK, _ack(self._pick(pick), RECIPIENTS[2], AckType.RECEIPT))

    def _batch(self, picks):
        first = Envelope.decode(self._pick(picks[0]))
        body = sign_batch(
            key=KEYS[first.recipient],
            ack_type=AckType.RECEIPT,
            message_ids=tuple(Envelope.decode(self._pick(pick)).message_id for pick in picks),
            sender=first.sender,
            timestamp_ms=NOW_MS,
        )
        self._append(Kind.ACK_BATCH, body)

    def _signal(self, pick, kind, right):
        data = self._pick(pick)
        self._append(Kind.SIGNAL, _signal(data, kind, right))

    def _lane(self, lane, kind, step):
        sender, recipient, session, priority = lane
        body = sign_signal(
            key=SENDERS[sender],
            kind=kind,
            peer=address(RECIPIENTS[recipient]),
            session_id=session_id(session),
            priority=priority,
            arg=max(1, self.counters.get(lane, 0) + step),
            time_ms=NOW_MS,
        )
        self._append(Kind.SIGNAL, body)

    # -- the hub, and accidents -----------------------------------------------------------

    def _tick(self):
        self._append(Kind.TICK, encode_tick(max(0, self.now_ms)))

    def _policy(self, number, which):
        self._append(Kind.POLICY, encode_policy(number, 1, POLICIES[which].to_json()))

    def _snapshot(self):
        self._append(Kind.SNAPSHOT, encode_snapshot(len(self.log)))

    def _garbage(self, value):
        self._value(value)

    def _flip(self, pick, bit):
        value = bytearray(self.log[pick % len(self.log)][2] or b"?")
        bit %= len(value) * 8
        value[bit // 8] ^= 1 << bit % 8
        self._value(bytes(value))

    def _cut(self, pick, size):
        self._value(self.log[pick % len(self.log)][2][:size])


@lru_cache(maxsize=100_000)
def _envelope(
    sender, recipient, session, priority, counter, *, variant="plain", number=0, **fields
):
    return envelope(
        sender=sender,
        recipient=recipient,
        session=session,
        priority=priority,
        counter=counter,
        message_id=message_id(number + (10**7 if variant == "other id" else 0)),
        payload=variant.encode(),
        **fields,
    )


@lru_cache(maxsize=100_000)
def _ack(data, signer, ack_type):
    about = Envelope.decode(data)
    return sign_ack(
        key=signer or KEYS[about.recipient],
        ack_type=ack_type,
        message_id=about.message_id,
        sender=about.sender,
        timestamp_ms=NOW_MS,
    )


@lru_cache(maxsize=100_000)
def _signal(data, kind, right):
    about = Envelope.decode(data)
    by_sender = kind == SignalKind.CANCEL
    return sign_signal(
        key=KEYS[about.sender if by_sender else about.recipient],
        kind=kind,
        peer=about.recipient if by_sender else about.sender,
        message_id=about.message_id,
        hash_prefix=envelope_hash(data)[:16] if right else bytes(16),
        time_ms=NOW_MS,
    )
