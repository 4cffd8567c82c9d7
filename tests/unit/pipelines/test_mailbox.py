import pytest

from pipelines.turn import lane_key
from schemas.acks import AckType
from schemas.envelope import NEVER, MessageClass, envelope_hash
from schemas.policy import Policy
from schemas.signals import SignalKind
from tests.factories import (
    DAY_S,
    NOW_MS,
    NOW_S,
    ack,
    ack_batch,
    address,
    device,
    envelope,
    lane_signal,
    message_id,
    session_id,
    signal,
)
from tests.world import World

ALICE, BOB, CAROL = device(1), device(2), device(3)
LANE = lane_key(address(ALICE), session_id(1), 1)
VOID, ELSEWHERE = SignalKind.VOID, SignalKind.ELSEWHERE


def lane_of(world):
    return world.box(address(BOB)).lanes[LANE]


def fed(*numbers, policy=None):
    """A world that got these messages of one lane."""
    world = World(policy)
    for n in numbers:
        world.arrive(envelope(n=n))
    return world


# -- accepting ------------------------------------------------------------------------------


def test_a_message_in_order_is_stored_at_the_next_position():
    world = World()
    data = envelope(n=1)
    first, second = world.arrive(data), world.arrive(envelope(n=2))
    assert first.kinds == second.kinds == ["stored"]
    assert first.inbox == [
        {
            "partition": 0,
            "offset": 0,
            "index": 0,
            "recipient": address(BOB).hex(),
            "sender": address(ALICE).hex(),
            "message_id": message_id(1).hex(),
            "kind": "stored",
            "position": 1,
            "priority": 1,
            "message_class": 0,
            "session_id": session_id(1).hex(),
            "counter": 1,
            "received_at_ms": NOW_MS,
            "expires_at_ms": NOW_MS + 7 * DAY_S * 1000,
            "not_before_ms": None,
            "gap_before": False,
            "envelope": data,
            "envelope_hash": envelope_hash(data).hex(),
            "expires_on": "2027-W03",
        }
    ]
    assert second.inbox[0]["position"] == 2
    assert second.report.touched == [address(BOB).hex()]


def test_positions_belong_to_a_mailbox():
    world = fed(1, 2)
    other = world.arrive(envelope(n=1, recipient=CAROL))
    assert other.inbox[0]["position"] == 1


@pytest.mark.parametrize("fields", [{"session": 2}, {"priority": 2}, {"sender": CAROL}])
def test_sessions_priorities_and_senders_are_lanes_of_their_own(fields):
    world = fed(1, 2)
    other = envelope(n=1, message_id=message_id(91), **fields)
    assert world.arrive(other).outcome == "stored"
    assert lane_of(world).expected == 3


def test_unordered_messages_are_stored_as_they_come():
    world = World()
    for n in (5, 3, 4):
        assert world.arrive(envelope(n=n, counter=0)).outcome == "stored"
    assert world.box(address(BOB)).position == 3
    assert lane_of(world).expected == 1


def test_live_only_messages_are_refused():
    answer = World().arrive(envelope(message_class=MessageClass.LIVE, counter=0))
    assert (answer.outcome, answer.reason, answer.inbox) == ("refused", "live_only", [])


# -- expiry ---------------------------------------------------------------------------------

HOUR_S = 3_600


@pytest.mark.parametrize(
    ("ttl_s", "reason"),
    [
        (-1, "expired"),
        (0, "expired"),
        (1, "ttl_too_short"),
        (HOUR_S - 301, "ttl_too_short"),
        (HOUR_S - 300, None),
        (HOUR_S, None),
        (90 * DAY_S, None),
        (90 * DAY_S + 1, "ttl_too_long"),
        (NEVER - NOW_S, "ttl_too_long"),
    ],
)
def test_an_expiry_must_be_neither_too_near_nor_too_far(ttl_s, reason):
    answer = World().arrive(envelope(expires_at_s=NOW_S + ttl_s))
    assert answer.reason == reason
    assert answer.outcome == ("stored" if reason is None else "refused")
    assert bool(answer.inbox) == (reason is None)


def test_a_refusal_for_its_expiry_is_no_security_event():
    assert World().arrive(envelope(expires_at_s=NOW_S)).history[0]["security"] is False


@pytest.mark.parametrize(
    ("ttl_s", "applied_s"), [(30 * DAY_S, 30 * DAY_S), (90 * DAY_S, 30 * DAY_S), (DAY_S, DAY_S)]
)
def test_an_expiry_beyond_thirty_days_is_capped_and_the_rows_say_so(ttl_s, applied_s):
    answer = World().arrive(envelope(expires_at_s=NOW_S + ttl_s))
    assert answer.inbox[0]["expires_at_ms"] == NOW_MS + applied_s * 1000
    assert answer.history[0]["expires_at_ms"] == NOW_MS + applied_s * 1000


def test_the_limits_come_from_the_policy():
    world = World(Policy(expiry_remaining_min_s=5, expiry_tolerance_s=0))
    assert world.arrive(envelope(n=1, expires_at_s=NOW_S + 5)).outcome == "stored"
    assert world.arrive(envelope(n=2, expires_at_s=NOW_S + 4)).reason == "ttl_too_short"


def test_a_message_that_never_expires_keeps_no_date():
    now_s = NEVER - 10 * DAY_S  # only then is `never` near enough for the rules of chat
    world = World()
    answer = world.arrive(envelope(expires_at_s=NEVER), at_ms=now_s * 1000)
    assert answer.inbox[0]["expires_at_ms"] is None
    assert answer.inbox[0]["expires_on"] == "never"
    assert lane_of(world).keep_until_s == now_s + Policy().never_lane_idle_s


# -- dedup ----------------------------------------------------------------------------------


def test_the_same_envelope_again_is_a_duplicate():
    world = fed(1)
    before = world.header.boxes
    again = world.arrive(envelope(n=1))
    assert (again.kinds, again.inbox) == (["duplicate"], [])
    assert again.history[0]["security"] is False
    assert world.header.boxes == before


def test_a_held_envelope_again_is_a_duplicate():
    assert fed(3).arrive(envelope(n=3)).outcome == "duplicate"


def test_an_expired_duplicate_of_a_pending_message_is_still_a_duplicate():
    world = World(Policy(expiry_remaining_min_s=60, expiry_tolerance_s=0))
    data = envelope(n=1, expires_at_s=NOW_S + 61)
    world.arrive(data)
    assert world.arrive(data, at_ms=NOW_MS + 30_000).outcome == "duplicate"


@pytest.mark.parametrize(
    "fields", [{"payload": b"other"}, {"session": 9}, {"counter": 2}, {"priority": 0}]
)
def test_another_envelope_under_a_pending_id_is_a_collision_and_a_security_event(fields):
    answer = fed(1).arrive(envelope(n=1, **fields))
    assert (answer.outcome, answer.reason) == ("refused", "collision")
    assert answer.history[0]["security"] is True


def test_the_same_id_of_another_sender_is_another_message():
    world = fed(1)
    assert world.arrive(envelope(n=1, sender=CAROL)).outcome == "stored"
    assert len(world.pending()) == 2


@pytest.mark.parametrize("end", ["ack", "taken", "cancel"])
def test_a_settled_message_is_still_known_by_its_id(end):
    world = fed(1)
    if end == "ack":
        world.ack(ack(envelope(n=1)))
    else:
        kind = SignalKind.TAKEN if end == "taken" else SignalKind.CANCEL
        world.signal(signal(envelope(n=1), kind=kind))
    assert not world.pending()
    assert world.arrive(envelope(n=1)).outcome == "duplicate"
    collision = world.arrive(envelope(n=1, payload=b"other"))
    assert collision.reason == "collision"
    assert collision.history[0]["security"] is True


def test_a_refused_message_may_come_again():
    world = World()
    data = envelope(n=1, counter=2_000, expires_at_s=NOW_S + 2 * HOUR_S)
    world.arrive(envelope(n=2, counter=1))
    assert world.arrive(data).reason == "gap_too_large"
    world.policy(Policy(gap_max=5_000))
    assert world.arrive(data).outcome == "held"


# -- order ----------------------------------------------------------------------------------


def test_a_message_ahead_is_held_and_released_in_order_when_the_gap_closes():
    world = fed(1)
    for n in (4, 3):
        held = world.arrive(envelope(n=n))
        assert (held.outcome, held.inbox[0]["position"]) == ("held", None)
        assert held.report.touched == []
    closed = world.arrive(envelope(n=2), at_ms=NOW_MS + 5)
    assert closed.kinds == ["stored", "released", "released"]
    assert [(r["kind"], r["counter"], r["position"]) for r in closed.inbox] == [
        ("stored", 2, 2),
        ("released", 3, 3),
        ("released", 4, 4),
    ]
    released = closed.inbox[1]
    assert released["envelope"] is None
    assert released["received_at_ms"] == NOW_MS + 5
    assert not any(row["gap_before"] for row in closed.inbox)
    assert closed.history[1]["position"] == 3
    assert lane_of(world).expected == 5


def test_draining_stops_at_the_next_gap():
    closed = fed(1, 3, 5).arrive(envelope(n=2))
    assert [row["counter"] for row in closed.inbox] == [2, 3]


def test_a_gap_of_exactly_the_limit_is_held_and_one_more_is_refused():
    world = fed(1)  # expected 2
    assert world.arrive(envelope(n=1002)).outcome == "held"
    refused = world.arrive(envelope(n=1003))
    assert (refused.outcome, refused.reason) == ("refused", "gap_too_large")
    assert refused.history[0]["security"] is False


def test_a_first_counter_within_the_limit_is_held_and_beyond_it_is_the_baseline():
    assert World().arrive(envelope(n=1001)).outcome == "held"
    world = World()
    answer = world.arrive(envelope(n=1002))
    assert answer.outcome == "stored"
    assert answer.inbox[0]["gap_before"] is True
    assert lane_of(world).expected == 1003
    assert world.arrive(envelope(n=1003)).inbox[0]["gap_before"] is False


def test_what_lies_below_a_baseline_is_a_replay():
    assert fed(1002).arrive(envelope(n=1001)).reason == "replay"


def test_unordered_messages_do_not_count_for_the_baseline():
    world = World()
    world.arrive(envelope(n=1, counter=0))
    assert world.arrive(envelope(n=1500)).inbox[0]["gap_before"] is True
    assert lane_of(world).expected == 1501


def test_another_message_under_a_held_counter_is_refused_and_a_security_event():
    world = fed(1, 3)
    answer = world.arrive(envelope(n=77, counter=3))
    assert (answer.reason, answer.history[0]["security"]) == ("counter_taken", True)
    assert lane_of(world).held[3][0] == message_id(3)


def test_a_counter_already_passed_is_a_replay_and_a_security_event():
    answer = fed(1, 2).arrive(envelope(n=77, counter=1))
    assert (answer.outcome, answer.reason) == ("refused", "replay")
    assert answer.history[0]["security"] is True


def test_the_counter_alone_stops_a_replay_that_the_ids_have_forgotten():
    world = World(Policy(recent_ids_max=0))
    world.arrive(envelope(n=1))
    world.ack(ack(envelope(n=1)))
    assert world.arrive(envelope(n=1)).reason == "replay"


def test_only_so_many_are_held():
    world = fed(2, 3, policy=Policy(held_max=2))
    full = world.arrive(envelope(n=4))
    assert (full.outcome, full.reason) == ("refused", "too_many_held")
    assert world.arrive(envelope(n=1)).kinds == ["stored", "released", "released"]


def test_a_skipped_counter_is_delivered_exactly_once():
    world = fed(1, 4)
    world.tick(NOW_MS + 300_000)
    late = world.arrive(envelope(n=2))
    assert (late.outcome, late.inbox[0]["position"]) == ("stored", 3)
    assert late.inbox[0]["gap_before"] is False
    assert world.arrive(envelope(n=2)).outcome == "duplicate"
    assert world.arrive(envelope(n=77, counter=2)).reason == "replay"
    assert world.arrive(envelope(n=3)).outcome == "stored"


# -- void, elsewhere ------------------------------------------------------------------------


def test_a_void_counter_at_the_head_lets_the_lane_go_on():
    world = fed(1, 3)
    answer = world.signal(lane_signal(kind=VOID, counter=2))
    assert answer.kinds == ["void", "released"]
    assert not answer.inbox[0]["gap_before"]
    assert answer.history[0]["counter"] == 2
    assert answer.history[0]["message_id"] is None
    assert world.arrive(envelope(n=2)).reason == "replay"


def test_a_counter_sent_elsewhere_lets_the_lane_go_on_and_may_come_once():
    world = fed(1, 3)
    assert world.signal(lane_signal(kind=ELSEWHERE, counter=2)).kinds == ["elsewhere", "released"]
    assert world.arrive(envelope(n=2)).outcome == "stored"
    assert world.arrive(envelope(n=77, counter=2)).reason == "replay"


def test_a_counter_void_ahead_is_passed_when_the_lane_comes_to_it():
    world = fed(1, 4)
    assert world.signal(lane_signal(kind=VOID, counter=3)).kinds == ["void"]
    assert world.arrive(envelope(n=2)).kinds == ["stored", "released"]
    assert lane_of(world).expected == 5
    assert lane_of(world).skipped == []


def test_a_counter_elsewhere_ahead_is_skipped_when_the_lane_comes_to_it():
    world = fed(1, 4)
    world.signal(lane_signal(kind=ELSEWHERE, counter=3))
    assert world.arrive(envelope(n=2)).kinds == ["stored", "released"]
    assert lane_of(world).skipped == [(3, 3)]


def test_a_message_sent_elsewhere_that_comes_early_is_held_like_any_other():
    world = fed(1)
    world.signal(lane_signal(kind=ELSEWHERE, counter=3))
    assert world.arrive(envelope(n=3)).outcome == "held"
    assert world.arrive(envelope(n=2)).kinds == ["stored", "released"]
    assert lane_of(world).skipped == []


def test_a_message_under_a_counter_that_is_void_ahead_is_a_replay():
    world = fed(1)
    world.signal(lane_signal(kind=VOID, counter=3))
    answer = world.arrive(envelope(n=3))
    assert (answer.reason, answer.history[0]["security"]) == ("replay", True)


def test_void_wins_over_elsewhere_whichever_comes_first():
    for kinds in ((VOID, ELSEWHERE), (ELSEWHERE, VOID)):
        world = fed(1)
        for kind in kinds:
            world.signal(lane_signal(kind=kind, counter=3))
        assert lane_of(world).ahead == {3: False}


def test_a_void_counter_below_is_no_longer_awaited():
    world = fed(1, 4)
    world.tick(NOW_MS + 300_000)
    world.signal(lane_signal(kind=VOID, counter=2))
    assert lane_of(world).skipped == [(3, 3)]
    assert world.arrive(envelope(n=2)).reason == "replay"


@pytest.mark.parametrize("counter", [1, 2])
def test_a_counter_elsewhere_below_changes_nothing(counter):
    world = fed(1, 4)
    world.tick(NOW_MS + 300_000)
    before = lane_of(world)
    assert world.signal(lane_signal(kind=ELSEWHERE, counter=counter)).kinds == ["elsewhere"]
    assert lane_of(world).skipped == before.skipped == [(2, 3)]


@pytest.mark.parametrize("kind", [VOID, ELSEWHERE])
def test_a_message_that_is_here_wins_over_what_is_said_of_it(kind):
    world = fed(1, 3)
    answer = world.signal(lane_signal(kind=kind, counter=3))
    assert answer.reason == "counter_taken"
    assert world.arrive(envelope(n=2)).kinds == ["stored", "released"]


@pytest.mark.parametrize(("counter", "reason"), [(1002, None), (1003, "gap_too_large")])
def test_a_signal_too_far_ahead_is_not_followed(counter, reason):
    world = fed(1)
    answer = world.signal(lane_signal(kind=VOID, counter=counter))
    assert answer.reason == reason
    assert (counter in lane_of(world).ahead) == (reason is None)


def test_a_signal_that_is_not_followed_makes_no_lane():
    world = World()
    assert world.signal(lane_signal(kind=VOID, counter=5_000)).reason == "gap_too_large"
    assert world.box(address(BOB)) is None
    assert world.arrive(envelope(n=5_001)).inbox[0]["gap_before"] is True


def test_a_signal_may_be_the_first_word_of_a_lane():
    world = World()
    data = lane_signal(kind=VOID, counter=1, time_ms=NOW_MS + 7)
    row = world.signal(data).history[0]
    assert (row["said_at_ms"], row["proof"], row["session_id"]) == (
        NOW_MS + 7,
        data,
        session_id(1).hex(),
    )
    assert world.arrive(envelope(n=2)).outcome == "stored"


def test_a_signal_speaks_of_its_own_priority_only():
    world = fed(1, 3)
    world.signal(lane_signal(kind=VOID, counter=2, priority=2))
    assert lane_of(world).held


# -- acks -----------------------------------------------------------------------------------


def test_a_receipt_settles_the_message_and_keeps_the_proof():
    world = fed(1)
    frame = ack(envelope(n=1), timestamp_ms=NOW_MS + 3)
    answer = world.ack(frame, at_ms=NOW_MS + 9)
    (row,) = answer.history
    assert (row["kind"], row["known"], row["proof"]) == ("delivered", True, frame)
    assert (row["said_at_ms"], row["at_ms"]) == (NOW_MS + 3, NOW_MS + 9)
    assert answer.outcome == "other"
    assert not world.pending()


def test_read_before_receipt_settles_and_the_receipt_comes_late():
    world = fed(1)
    read = world.ack(ack(envelope(n=1), ack_type=AckType.READ)).history[0]
    late = world.ack(ack(envelope(n=1))).history[0]
    assert (read["kind"], read["known"]) == ("read", True)
    assert (late["kind"], late["known"]) == ("delivered", False)


def test_a_repeated_ack_is_one_more_row_and_nothing_else():
    world = fed(1)
    world.ack(ack(envelope(n=1)))
    before = world.header.boxes
    again = world.ack(ack(envelope(n=1)))
    assert (again.history[0]["known"], again.history[0]["proof"]) == (False, ack(envelope(n=1)))
    assert world.header.boxes == before


def test_an_ack_of_somebody_else_settles_nothing():
    world = fed(1)
    foreign = world.ack(ack(envelope(n=1), signer=CAROL)).history[0]
    assert (foreign["known"], foreign["recipient"]) == (False, address(CAROL).hex())
    wrong_sender = world.ack(ack(envelope(n=1), sender=address(CAROL))).history[0]
    assert wrong_sender["known"] is False
    assert len(world.pending()) == 1
    assert world.box(address(CAROL)) is None


def test_a_batch_of_acks_gives_a_row_each_and_the_proof_once():
    world = fed(1, 2)
    frame = ack_batch([envelope(n=n) for n in (2, 1, 5, 2)])
    rows = world.ack_batch(frame).history
    assert [row["message_id"] for row in rows] == [message_id(n).hex() for n in (2, 1, 5, 2)]
    assert [row["known"] for row in rows] == [True, True, False, False]
    assert [row["proof"] for row in rows] == [frame, None, None, None]


@pytest.mark.parametrize("end", ["ack", "taken", "cancel"])
def test_a_held_message_that_is_settled_passes_its_counter(end):
    world = fed(1, 3, 4)
    if end == "ack":
        world.ack(ack(envelope(n=3)))
    else:
        kind = SignalKind.TAKEN if end == "taken" else SignalKind.CANCEL
        world.signal(signal(envelope(n=3), kind=kind))
    assert lane_of(world).ahead == {3: False}
    assert world.arrive(envelope(n=2)).kinds == ["stored", "released"]
    assert lane_of(world).expected == 5


def test_a_held_message_that_was_settled_cannot_come_back():
    world = fed(1, 3, policy=Policy(recent_ids_max=0))
    world.ack(ack(envelope(n=3)))
    world.signal(lane_signal(kind=ELSEWHERE, counter=3))  # not even by its sender's word
    answer = world.arrive(envelope(n=3))
    assert (answer.reason, answer.history[0]["security"]) == ("replay", True)
    world.arrive(envelope(n=2))
    assert world.arrive(envelope(n=3)).reason == "replay"


# -- taken, cancelled, noted ----------------------------------------------------------------


def test_taken_settles_without_a_dead_letter():
    world = fed(1)
    frame = signal(envelope(n=1), kind=SignalKind.TAKEN)
    answer = world.signal(frame)
    (row,) = answer.history
    assert (row["kind"], row["known"], row["proof"]) == ("taken", True, frame)
    assert answer.dead_letters == []
    assert not world.pending()


def test_a_cancelled_message_becomes_a_dead_letter():
    world = fed(1)
    answer = world.signal(signal(envelope(n=1)), at_ms=NOW_MS + 5)
    assert (answer.history[0]["kind"], answer.history[0]["known"]) == ("cancelled", True)
    (dead,) = answer.dead_letters
    assert (dead["reason"], dead["category"]) == ("cancelled", "cancelled")
    assert (dead["moved_at_ms"], dead["attempts"]) == (NOW_MS + 5, 0)
    assert dead["expires_at_ms"] == NOW_MS + 7 * DAY_S * 1000
    assert not world.pending()


@pytest.mark.parametrize("kind", [SignalKind.TAKEN, SignalKind.CANCEL])
def test_a_signal_about_an_unknown_message_is_a_row_and_nothing_else(kind):
    answer = World().signal(signal(envelope(n=1), kind=kind))
    assert answer.history[0]["known"] is False
    assert answer.dead_letters == []


@pytest.mark.parametrize("kind", [SignalKind.TAKEN, SignalKind.CANCEL])
def test_a_signal_about_another_envelope_of_that_id_settles_nothing(kind):
    world = fed(1)
    answer = world.signal(signal(envelope(n=1, payload=b"other"), kind=kind))
    assert answer.history[0]["known"] is False
    assert answer.dead_letters == []
    assert len(world.pending()) == 1


def test_only_the_sender_cancels():
    world = fed(1)
    data = envelope(n=1)
    assert world.signal(signal(data, signer=CAROL)).history[0]["known"] is False
    assert len(world.pending()) == 1


def test_a_scheduled_message_can_be_cancelled():
    world = World()
    data = envelope(n=1, counter=0, not_before_s=NOW_S + 60)
    world.arrive(data)
    assert world.signal(signal(data)).history[0]["known"] is True
    assert world.tick(NOW_MS + 60_000).history == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (SignalKind.NAK, "nak"),
        (SignalKind.TERM, "term"),
        (SignalKind.UNDECRYPTABLE, "undecryptable"),
    ],
)
def test_other_words_of_the_recipient_are_kept_and_change_nothing(kind, name):
    world = fed(1)
    arg = 0 if kind == SignalKind.UNDECRYPTABLE else 30
    answer = world.signal(signal(envelope(n=1), kind=kind, arg=arg))
    (row,) = answer.history
    assert (row["kind"], row["reason"], row["known"]) == (name, str(arg), True)
    assert world.signal(signal(envelope(n=2), kind=kind, arg=arg)).history[0]["known"] is False
    assert len(world.pending()) == 1


# -- scheduled ------------------------------------------------------------------------------


def test_a_message_for_later_is_scheduled_without_a_position():
    answer = World().arrive(envelope(counter=0, not_before_s=NOW_S + 60))
    assert (answer.outcome, answer.inbox[0]["position"]) == ("scheduled", None)
    assert answer.inbox[0]["not_before_ms"] == NOW_MS + 60_000
    assert answer.report.wake_at_ms == NOW_MS + 60_000


def test_a_not_before_that_has_come_is_no_reason_to_wait():
    assert World().arrive(envelope(counter=0, not_before_s=NOW_S)).outcome == "stored"
    assert World().arrive(envelope(n=1, not_before_s=NOW_S)).outcome == "stored"


def test_a_message_with_a_place_in_its_lane_cannot_be_scheduled():
    answer = World().arrive(envelope(n=1, not_before_s=NOW_S + 60))
    assert (answer.outcome, answer.reason) == ("refused", "scheduled_in_lane")
