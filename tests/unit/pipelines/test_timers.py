import pytest

from pipelines.turn import NO_TIMER, lane_key
from schemas.envelope import NEVER
from schemas.policy import Policy
from schemas.signals import SignalKind
from tests.factories import (
    DAY_S,
    NOW_MS,
    NOW_S,
    ack,
    address,
    device,
    envelope,
    lane_signal,
    message_id,
    session_id,
)
from tests.world import World

ALICE, BOB, CAROL = device(1), device(2), device(3)
LANE = lane_key(address(ALICE), session_id(1), 1)
TIMEOUT_MS = 300_000
SHORT = Policy(expiry_remaining_min_s=0, expiry_tolerance_s=0)


def lane_of(world):
    return world.box(address(BOB)).lanes[LANE]


# -- gaps -----------------------------------------------------------------------------------


def test_a_gap_is_given_up_when_the_oldest_held_has_waited_long_enough():
    world = World()
    world.arrive(envelope(n=5), at_ms=NOW_MS)
    world.arrive(envelope(n=3), at_ms=NOW_MS + 200_000)
    assert world.tick(NOW_MS + TIMEOUT_MS - 1).history == []
    answer = world.tick(NOW_MS + TIMEOUT_MS)
    assert answer.kinds == ["gap", "released", "gap", "released"]
    gaps = [row for row in answer.history if row["kind"] == "gap"]
    assert [(row["counter"], row["counter_to"]) for row in gaps] == [(1, 2), (4, 4)]
    assert all(row["message_id"] is None for row in gaps)
    assert gaps[0]["session_id"] == session_id(1).hex()
    assert lane_of(world).skipped == [(1, 2), (4, 4)]
    assert lane_of(world).expected == 6


def test_only_the_first_message_after_a_gap_says_so():
    world = World()
    for n in (3, 4, 5):
        world.arrive(envelope(n=n))
    rows = world.tick(NOW_MS + TIMEOUT_MS).inbox
    assert [(row["counter"], row["gap_before"]) for row in rows] == [
        (3, True),
        (4, False),
        (5, False),
    ]
    assert [row["position"] for row in rows] == [1, 2, 3]


def test_a_gap_asks_for_the_missing_counters_once_more():
    world = World()
    world.arrive(envelope(n=1))
    world.arrive(envelope(n=40))
    answer = world.tick(NOW_MS + TIMEOUT_MS)
    assert answer.orders == [
        {
            "kind": "retransmit",
            "sender": address(ALICE).hex(),
            "recipient": address(BOB).hex(),
            "session_id": session_id(1).hex(),
            "priority": 1,
            "counter": 2,
            "counter_to": 12,
            "partition": 0,
            "offset": 2,
            "index": 1,
        }
    ]
    assert answer.report.touched == [address(BOB).hex()]


def test_a_gap_is_dated_when_it_was_due_however_late_the_tick():
    world = World()
    world.arrive(envelope(n=2))
    answer = world.tick(NOW_MS + 10 * TIMEOUT_MS)
    assert {row["at_ms"] for row in answer.history} == {NOW_MS + TIMEOUT_MS}
    assert answer.inbox[0]["received_at_ms"] == NOW_MS + TIMEOUT_MS


def test_a_gap_that_closed_in_time_is_none():
    world = World()
    world.arrive(envelope(n=2))
    world.arrive(envelope(n=1), at_ms=NOW_MS + TIMEOUT_MS - 1)
    assert world.tick(NOW_MS + 2 * TIMEOUT_MS).history == []


def test_the_missing_message_comes_too_late_in_the_very_record_that_ends_the_wait():
    world = World()
    world.arrive(envelope(n=2))
    answer = world.arrive(envelope(n=1), at_ms=NOW_MS + TIMEOUT_MS)
    assert answer.kinds == ["gap", "released", "stored"]
    assert [row["position"] for row in answer.inbox] == [1, 2]
    assert answer.outcome == "stored"


def test_the_next_gap_is_measured_from_those_still_held():
    world = World()
    world.arrive(envelope(n=3))
    world.arrive(envelope(n=6), at_ms=NOW_MS + 100_000)
    assert world.tick(NOW_MS + TIMEOUT_MS).report.wake_at_ms == NOW_MS + 100_000 + TIMEOUT_MS
    answer = world.tick(NOW_MS + 100_000 + TIMEOUT_MS)
    assert [row["counter"] for row in answer.inbox] == [6]


def test_lanes_give_up_their_gaps_each_at_its_time():
    world = World()
    world.arrive(envelope(n=2, session=2, message_id=message_id(22)), at_ms=NOW_MS)
    world.arrive(envelope(n=2, session=1), at_ms=NOW_MS + 1_000)
    answer = world.tick(NOW_MS + 2 * TIMEOUT_MS)
    assert [row["at_ms"] - NOW_MS - TIMEOUT_MS for row in answer.history] == [0, 0, 1_000, 1_000]
    assert answer.history[0]["session_id"] == session_id(2).hex()


def test_nothing_is_given_up_while_nothing_is_held():
    world = World()
    world.arrive(envelope(n=1))
    world.signal(lane_signal(kind=SignalKind.VOID, counter=5))
    answer = world.tick(NOW_MS + 2 * TIMEOUT_MS)
    assert answer.history == []
    assert lane_of(world).expected == 2


def test_a_lane_whose_only_held_message_was_settled_waits_for_nothing():
    world = World()
    world.arrive(envelope(n=1))
    world.arrive(envelope(n=3))
    world.ack(ack(envelope(n=3)))
    assert world.tick(NOW_MS + 2 * TIMEOUT_MS).history == []


def test_a_shorter_timeout_counts_from_the_next_record_and_never_backwards():
    world = World()
    world.arrive(envelope(n=2), at_ms=NOW_MS)
    world.arrive(envelope(n=4), at_ms=NOW_MS + 100_000)
    world.policy(Policy(gap_timeout_ms=10_000), at_ms=NOW_MS + 150_000)
    answer = world.tick(NOW_MS + 150_001)
    assert answer.kinds == ["gap", "released", "gap", "released"]
    assert {row["at_ms"] for row in answer.history} == {NOW_MS + 150_000}


def test_a_shorter_timeout_wakes_the_shard_and_a_longer_one_lets_it_sleep():
    world = World()
    world.arrive(envelope(n=2))
    shorter = world.policy(Policy(gap_timeout_ms=200_000), at_ms=NOW_MS + 1)
    assert shorter.report.wake_at_ms == NOW_MS + 1
    assert world.tick(NOW_MS + 2).report.wake_at_ms == NOW_MS + 200_000
    world.policy(Policy(gap_timeout_ms=900_000), at_ms=NOW_MS + 3)
    answer = world.tick(NOW_MS + 200_000)
    assert (answer.history, answer.report.wake_at_ms) == ([], NOW_MS + 900_000)


# -- expiry ---------------------------------------------------------------------------------


def test_a_message_expires_at_its_time_and_not_before():
    world = World(SHORT)
    world.arrive(envelope(n=1, expires_at_s=NOW_S + 10))
    assert world.tick(NOW_MS + 9_999).history == []
    (row,) = world.tick(NOW_MS + 10_000).history
    assert (row["kind"], row["message_id"]) == ("expired", message_id(1).hex())
    assert row["expires_at_ms"] == NOW_MS + 10_000
    assert not world.pending()


def test_an_expired_message_is_dated_by_its_expiry_and_comes_before_the_record():
    world = World(SHORT)
    world.arrive(envelope(n=1, expires_at_s=NOW_S + 10))
    answer = world.arrive(envelope(n=2, counter=0), at_ms=NOW_MS + 60_000)
    assert [(r["kind"], r["at_ms"]) for r in answer.history] == [
        ("expired", NOW_MS + 10_000),
        ("stored", NOW_MS + 60_000),
    ]
    assert [row["index"] for row in answer.history] == [0, 2]
    assert answer.outcome == "stored"


def test_the_applied_expiry_counts_and_not_the_signed_one():
    world = World()
    world.arrive(envelope(n=1, expires_at_s=NOW_S + 60 * DAY_S))
    assert world.tick((NOW_S + 30 * DAY_S) * 1000).kinds == ["expired"]


def test_an_ack_at_the_moment_of_expiry_is_late():
    world = World(SHORT)
    data = envelope(n=1, expires_at_s=NOW_S + 10)
    world.arrive(data)
    answer = world.ack(ack(data), at_ms=NOW_MS + 10_000)
    assert [(r["kind"], r["known"]) for r in answer.history] == [
        ("expired", None),
        ("delivered", False),
    ]


def test_an_expired_message_is_known_by_its_id():
    world = World(SHORT)
    data = envelope(n=1, expires_at_s=NOW_S + 10)
    world.arrive(data)
    world.tick(NOW_MS + 10_000)
    assert world.arrive(data).outcome == "duplicate"


def test_messages_expire_in_order_of_their_expiry():
    world = World(SHORT)
    for n, ttl_s in ((1, 30), (2, 10), (3, 20)):
        world.arrive(envelope(n=n, expires_at_s=NOW_S + ttl_s))
    answer = world.tick(NOW_MS + 30_000)
    assert [row["message_id"] for row in answer.history] == [message_id(n).hex() for n in (2, 3, 1)]


def test_a_held_message_that_expires_passes_its_counter():
    world = World(SHORT)
    world.arrive(envelope(n=1))
    world.arrive(envelope(n=3, expires_at_s=NOW_S + 10))
    world.arrive(envelope(n=4), at_ms=NOW_MS + 1_000)
    assert world.tick(NOW_MS + 10_000).kinds == ["expired"]
    closed = world.arrive(envelope(n=2))
    assert [row["counter"] for row in closed.inbox] == [2, 4]
    assert lane_of(world).skipped == []


def test_a_gap_is_no_longer_measured_from_a_message_that_expired():
    world = World(SHORT)
    world.arrive(envelope(n=3, expires_at_s=NOW_S + 10))
    world.arrive(envelope(n=4), at_ms=NOW_MS + 5_000)
    assert world.tick(NOW_MS + TIMEOUT_MS).kinds == ["expired"]
    answer = world.tick(NOW_MS + 5_000 + TIMEOUT_MS)
    assert answer.kinds == ["gap", "released"]
    assert (answer.history[0]["counter"], answer.history[0]["counter_to"]) == (1, 3)
    assert lane_of(world).skipped == [(1, 2)]


def test_expiry_comes_before_the_end_of_a_gap_at_the_same_moment():
    world = World(SHORT)
    world.arrive(envelope(n=2, expires_at_s=NOW_S + 300))
    answer = world.tick(NOW_MS + TIMEOUT_MS)
    assert answer.kinds == ["expired"]
    assert answer.orders == []


def test_time_missed_is_made_up_in_order():
    world = World(SHORT)
    world.arrive(envelope(n=2, expires_at_s=NOW_S + 400))
    world.arrive(envelope(n=9, counter=0, not_before_s=NOW_S + 350))
    answer = world.tick(NOW_MS + 500_000)
    assert [(row["kind"], row["at_ms"] - NOW_MS) for row in answer.history] == [
        ("gap", 300_000),
        ("released", 300_000),
        ("released", 350_000),
        ("expired", 400_000),
    ]


# -- scheduled ------------------------------------------------------------------------------


def test_a_scheduled_message_is_released_at_its_time_with_a_new_position():
    world = World()
    world.arrive(envelope(n=1, counter=0, not_before_s=NOW_S + 60))
    world.arrive(envelope(n=2, counter=0))
    assert world.tick(NOW_MS + 59_999).inbox == []
    answer = world.tick(NOW_MS + 60_000)
    (row,) = answer.inbox
    assert (row["kind"], row["position"], row["gap_before"]) == ("released", 2, False)
    assert answer.kinds == ["released"]
    assert world.tick(NOW_MS + 120_000).history == []


def test_a_scheduled_message_that_expires_first_is_never_released():
    world = World(SHORT)
    world.arrive(envelope(n=1, counter=0, not_before_s=NOW_S + 60, expires_at_s=NOW_S + 60))
    answer = world.tick(NOW_MS + 90_000)
    assert (answer.kinds, answer.inbox) == (["expired"], [])


def test_a_scheduled_message_lives_on_after_its_release():
    world = World(SHORT)
    world.arrive(envelope(n=1, counter=0, not_before_s=NOW_S + 60, expires_at_s=NOW_S + 90))
    world.tick(NOW_MS + 60_000)
    assert len(world.pending()) == 1
    assert world.tick(NOW_MS + 90_000).kinds == ["expired"]


# -- what is next ---------------------------------------------------------------------------


def test_the_wake_is_the_earliest_of_all_timers():
    world = World(SHORT)
    assert world.arrive(envelope(n=1)).report.wake_at_ms == NOW_MS + 7 * DAY_S * 1000
    assert world.arrive(envelope(n=3)).report.wake_at_ms == NOW_MS + TIMEOUT_MS
    late = envelope(n=8, counter=0, not_before_s=NOW_S + 200)
    assert world.arrive(late).report.wake_at_ms == NOW_MS + 200_000
    brief = envelope(n=9, counter=0, expires_at_s=NOW_S + 100)
    assert world.arrive(brief).report.wake_at_ms == NOW_MS + 100_000
    assert world.tick(NOW_MS + 100_000).report.wake_at_ms == NOW_MS + 200_000
    assert world.tick(NOW_MS + 200_000).report.wake_at_ms == NOW_MS + TIMEOUT_MS
    assert world.tick(NOW_MS + TIMEOUT_MS).report.wake_at_ms == NOW_MS + 7 * DAY_S * 1000


def test_a_wake_that_finds_nothing_to_do_sets_the_next_one_right():
    world = World()
    world.arrive(envelope(n=2))
    answer = world.arrive(envelope(n=1))
    assert answer.report.wake_at_ms == NOW_MS + TIMEOUT_MS
    assert world.tick(NOW_MS + TIMEOUT_MS).report.wake_at_ms == NOW_MS + 7 * DAY_S * 1000


def test_an_empty_lane_is_forgotten_when_the_last_envelope_of_it_must_have_expired():
    world = World()
    data = envelope(n=1, expires_at_s=NOW_S + 60 * DAY_S)
    world.arrive(data)
    answer = world.ack(ack(data))
    assert answer.report.wake_at_ms == NOW_MS + 30 * DAY_S * 1000
    assert world.tick((NOW_S + 60 * DAY_S) * 1000 - 1).report.wake_at_ms == (
        NOW_MS + 60 * DAY_S * 1000
    )
    assert lane_of(world).expected == 2
    assert world.tick((NOW_S + 60 * DAY_S) * 1000).report.wake_at_ms is None
    box = world.box(address(BOB))
    assert (box.lanes, box.position, box.due_at_ms) == ({}, 1, NO_TIMER)


def test_a_replay_after_its_lane_is_forgotten_is_refused_as_expired():
    world = World(Policy(recent_ids_max=0))
    data = envelope(n=1)
    world.arrive(data)
    world.ack(ack(data))
    assert world.arrive(data, at_ms=NOW_MS + 7 * DAY_S * 1000).reason == "expired"
    assert world.arrive(envelope(n=1, expires_at_s=NOW_S + 9 * DAY_S)).outcome == "stored"


def test_a_forgotten_lane_begins_again_so_its_next_counter_waits_for_the_first():
    world = World()
    data = envelope(n=1)
    world.arrive(data)
    world.tick(NOW_MS + 7 * DAY_S * 1000)
    assert world.arrive(envelope(n=2, expires_at_s=NOW_S + 9 * DAY_S)).outcome == "held"


def test_positions_go_on_after_all_lanes_are_forgotten():
    world = World()
    data = envelope(n=1)
    world.arrive(data)
    world.ack(ack(data))
    world.tick(NOW_MS + 7 * DAY_S * 1000)
    later = envelope(n=2, counter=1, session=2, expires_at_s=NOW_S + 9 * DAY_S)
    assert world.arrive(later).inbox[0]["position"] == 2


def test_a_mailbox_known_only_by_a_forgotten_lane_leaves_the_state():
    world = World()
    world.signal(lane_signal(counter=1))
    assert world.box(address(BOB)) is not None
    world.tick(NOW_MS + 30 * DAY_S * 1000)
    assert world.box(address(BOB)) is None
    assert world.whole()[0] == world.blob


@pytest.mark.parametrize("acked", [False, True])
def test_a_lane_of_messages_that_never_expire_stays_while_one_is_pending(acked):
    now_ms = (NEVER - 10 * DAY_S) * 1000
    world = World()
    data = envelope(n=1, expires_at_s=NEVER)
    first = world.arrive(data, at_ms=now_ms)
    assert first.report.wake_at_ms == now_ms + DAY_S * 1000  # when the lane could have gone
    if acked:
        world.ack(ack(data))
    answer = world.tick(now_ms + DAY_S * 1000)
    assert answer.report.wake_at_ms is None
    assert bool(world.box(address(BOB)).lanes) != acked
