import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.lane import Lane

MANY = 1_000


def lane(*, expected=1, held=(), ahead=None, skipped=()):
    return Lane(
        expected=expected,
        held={counter: (b"%d" % counter, 1_000 + counter) for counter in held},
        ahead=dict(ahead or {}),
        skipped=list(skipped),
    )


def test_two_lanes_share_nothing():
    one, other = Lane(), Lane()
    one.held[2] = (b"2", 0)
    one.skipped.append((1, 1))
    assert not other.held
    assert not other.skipped


@pytest.mark.parametrize(
    ("one", "new"),
    [
        (lane(), True),
        (lane(expected=2), False),
        (lane(held=[3]), False),
        (lane(ahead={3: False}), False),
    ],
)
def test_a_lane_is_new_until_it_has_seen_a_counter(one, new):
    assert one.is_new() is new


def test_draining_stops_at_the_first_missing_counter():
    one = lane(expected=3, held=[3, 4, 6])
    assert one.drain(MANY) == [b"3", b"4"]
    assert one.expected == 5
    assert list(one.held) == [6]


def test_draining_an_empty_lane_does_nothing():
    one = lane(expected=3)
    assert one.drain(MANY) == []
    assert one.expected == 3


def test_draining_passes_a_void_counter_for_good_and_skips_one_sent_elsewhere():
    one = lane(expected=3, held=[5], ahead={3: False, 4: True})
    assert one.drain(MANY) == [b"5"]
    assert (one.expected, one.ahead, one.skipped) == (6, {}, [(4, 4)])


@pytest.mark.parametrize(
    ("counter", "left"),
    [
        (10, [(11, 20), (30, 30)]),
        (15, [(10, 14), (16, 20), (30, 30)]),
        (20, [(10, 19), (30, 30)]),
        (30, [(10, 20)]),
    ],
)
def test_a_skipped_counter_is_used_up_once(counter, left):
    one = lane(expected=40, skipped=[(10, 20), (30, 30)])
    assert one.take_skipped(counter, MANY)
    assert one.skipped == left
    assert not one.take_skipped(counter, MANY)
    assert one.skipped == left


@pytest.mark.parametrize("counter", [1, 9, 21, 29, 31, 39])
def test_a_counter_outside_the_skipped_ranges_was_not_skipped(counter):
    one = lane(expected=40, skipped=[(10, 20), (30, 30)])
    assert not one.take_skipped(counter, MANY)
    assert one.skipped == [(10, 20), (30, 30)]


def test_neighbouring_ranges_become_one():
    one = lane(skipped=[(1, 3)])
    one.add_skipped(4, 6, MANY)
    one.add_skipped(8, 8, MANY)
    assert one.skipped == [(1, 6), (8, 8)]


def test_beyond_the_limit_the_oldest_range_is_passed_for_good():
    one = lane(skipped=[(1, 1), (3, 3)])
    one.add_skipped(5, 5, ranges_max=2)
    assert one.skipped == [(3, 3), (5, 5)]


def test_taking_one_out_of_the_middle_keeps_to_the_limit_too():
    one = lane(expected=20, skipped=[(1, 3), (5, 9)])
    assert one.take_skipped(7, ranges_max=2)
    assert one.skipped == [(5, 6), (8, 9)]


def test_a_gap_reaches_up_to_the_lowest_held_counter():
    one = lane(expected=3, held=[9, 6])
    assert one.skip_gap(MANY) == (3, 5)
    assert (one.expected, one.skipped) == (6, [(3, 5)])


def test_a_gap_skips_all_but_what_is_void():
    one = lane(expected=3, held=[9], ahead={4: False, 6: True, 8: False, 11: True})
    assert one.skip_gap(MANY) == (3, 8)
    assert one.skipped == [(3, 3), (5, 7)]
    assert one.ahead == {11: True}


def test_the_oldest_held_is_the_one_that_came_first_whatever_its_counter():
    one = Lane(held={7: (b"7", 500), 3: (b"3", 900)})
    assert one.oldest_held_ms() == 500
    assert Lane().oldest_held_ms() is None


counters = st.integers(1, 30)


@given(
    ranges=st.sets(counters).map(sorted),
    taken=st.lists(counters, max_size=20),
)
def test_skipped_ranges_are_a_set_of_counters(ranges, taken):
    one, model = lane(expected=31), set(ranges)
    for counter in ranges:
        one.add_skipped(counter, counter, MANY)
    for counter in taken:
        assert one.take_skipped(counter, MANY) == (counter in model)
        model.discard(counter)
    assert [c for low, high in one.skipped for c in range(low, high + 1)] == sorted(model)
    assert all(low <= high for low, high in one.skipped)


@given(
    held=st.sets(st.integers(2, 20), min_size=1),
    ahead=st.dictionaries(st.integers(2, 20), st.booleans()),
)
def test_after_a_gap_every_counter_below_was_released_passed_or_skipped(held, ahead):
    ahead = {counter: maybe for counter, maybe in ahead.items() if counter not in held}
    one = lane(held=held, ahead=ahead)
    low, high = one.skip_gap(MANY)
    released = {int(message_id) for message_id in one.drain(MANY)}
    skipped = {c for start, end in one.skipped for c in range(start, end + 1)}
    passed = {c for c, maybe in ahead.items() if not maybe and c < one.expected}
    assert (low, high) == (1, min(held) - 1)
    assert released
    assert released.isdisjoint(skipped)
    assert released | passed | skipped == set(range(1, one.expected))
    assert one.expected not in one.held
    assert one.expected not in one.ahead
    assert all(counter > one.expected for counter in (*one.held, *one.ahead))
