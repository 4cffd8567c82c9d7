import pytest

from pipelines.effects import Record, Release
from pipelines.lane import Lane, Pending
from pipelines.turn import NO_TIMER, Mailbox, Turn, expiry_ms, lane_key, split_key
from schemas.envelope import NEVER
from schemas.policy import Policy

OWNER, SENDER, SESSION = b"o" * 32, b"s" * 32, b"e" * 32
KEY = lane_key(SENDER, SESSION, 2)
FIRST, SECOND = b"1" * 16, b"2" * 16
NOW = 1_800_000_000_000


def pending(counter=0, *, expires_at_s=NOW // 1000 + 60):
    return Pending(b"h" * 8, expires_at_s, counter, 0, 0)


def turn(**lane):
    box = Mailbox(lanes={KEY: Lane(**lane)} if lane else {})
    return Turn(owner=OWNER, box=box, policy=Policy(), now_ms=NOW)


def test_a_lane_key_comes_apart_again():
    assert split_key(KEY) == (SENDER, SESSION, 2)
    assert len(KEY) == 65


def test_never_is_no_date():
    assert expiry_ms(NEVER) is None
    assert expiry_ms(7) == 7_000


def test_two_turns_share_nothing():
    one, other = turn(), turn()
    one.record("stored", SENDER)
    one.settled.append((SENDER, FIRST, b""))
    assert (other.effects, other.settled) == ([], [])


def test_a_blank_mailbox_has_neither_positions_nor_lanes():
    assert Mailbox().is_blank()
    assert not Mailbox(position=1).is_blank()
    assert not turn(expected=2).box.is_blank()


def test_a_record_carries_the_mailbox_and_the_time():
    one = turn()
    one.record("stored", SENDER, message_id=FIRST)
    expected = Record(kind="stored", sender=SENDER, recipient=OWNER, at_ms=NOW, message_id=FIRST)
    assert one.effects == [expected]


def test_the_earliest_wake_counts():
    one = turn()
    assert one.box.due_at_ms == NO_TIMER
    one.wake(500)
    one.wake(900)
    assert one.box.due_at_ms == 500


def test_a_new_lane_is_kept_until_it_may_be_forgotten():
    one = turn()
    assert one.lane(KEY, 77) is one.box.lanes[KEY]
    assert one.box.due_at_ms == 77_000


def test_a_lane_is_kept_for_the_latest_expiry_and_not_watched_while_it_has_messages():
    one = turn(keep_until_s=50, pending={FIRST: pending()})
    assert one.lane(KEY, 40).keep_until_s == 50
    assert one.lane(KEY, 60).keep_until_s == 60
    assert one.box.due_at_ms == NO_TIMER


def test_a_message_is_found_by_sender_and_id():
    one = turn(pending={FIRST: pending()})
    assert one.find(SENDER, FIRST) == (KEY, pending())
    assert one.find(SENDER, SECOND) is None
    assert one.find(OWNER, FIRST) is None


@pytest.mark.parametrize("short_hash", [None, b"h" * 8])
def test_settling_lets_go_and_remembers_the_id(short_hash):
    one = turn(pending={FIRST: pending(), SECOND: pending()})
    assert one.settle(SENDER, FIRST, short_hash) == (KEY, pending())
    assert list(one.box.lanes[KEY].pending) == [SECOND]
    assert one.settled == [(SENDER, FIRST, b"h" * 8)]
    assert one.box.due_at_ms == NO_TIMER


def test_settling_the_wrong_one_does_nothing():
    one = turn(pending={FIRST: pending()})
    assert one.settle(SENDER, FIRST, b"x" * 8) is None
    assert one.settle(SENDER, SECOND) is None
    assert one.settled == []
    assert list(one.box.lanes[KEY].pending) == [FIRST]


def test_the_last_message_of_a_lane_leaves_a_lane_to_forget():
    one = turn(keep_until_s=90, pending={FIRST: pending()})
    one.settle(SENDER, FIRST)
    assert one.box.due_at_ms == 90_000


def test_removing_a_held_message_passes_its_counter():
    one = turn(pending={FIRST: pending(5)}, held={5: (FIRST, NOW)})
    one.remove(KEY, FIRST)
    assert (one.box.lanes[KEY].held, one.box.lanes[KEY].ahead) == ({}, {5: False})


def test_removing_a_late_message_leaves_a_held_one_alone():
    one = turn(pending={FIRST: pending(5)}, held={5: (SECOND, NOW)})
    one.remove(KEY, FIRST)
    assert (one.box.lanes[KEY].held, one.box.lanes[KEY].ahead) == ({5: (SECOND, NOW)}, {})


def test_positions_only_grow():
    one, message = turn(), pending()
    assert [one.give_position(message) for _ in range(3)] == [1, 2, 3]
    assert message.position == one.box.position == 3


def test_draining_tells_of_a_gap_before_the_first_message_only():
    one = turn(
        expected=4,
        pending={FIRST: pending(4), SECOND: pending(5)},
        held={5: (SECOND, NOW), 4: (FIRST, NOW)},
    )
    one.drain(KEY, gap_before=True)
    releases = [effect for effect in one.effects if isinstance(effect, Release)]
    assert [(r.message_id, r.position, r.gap_before) for r in releases] == [
        (FIRST, 1, True),
        (SECOND, 2, False),
    ]
    assert (releases[0].priority, releases[0].session_id, releases[0].counter) == (2, SESSION, 4)
    assert releases[0].expires_at_ms == NOW + 60_000
    records = [effect for effect in one.effects if isinstance(effect, Record)]
    assert [(r.kind, r.message_id, r.position) for r in records] == [
        ("released", FIRST, 1),
        ("released", SECOND, 2),
    ]
