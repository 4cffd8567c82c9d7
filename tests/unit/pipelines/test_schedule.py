from hypothesis import given
from hypothesis import strategies as st

from pipelines.schedule import RETICK_MAX_MS, RETICK_MS, Schedule

NOW = 1_800_000_000_000
TRIGGER = 500


def settled(shards=1, wake_at_ms=None):
    """A schedule whose first round of ticks is answered."""
    schedule = Schedule(shards, TRIGGER, NOW)
    for offset, shard in enumerate(schedule.due(NOW)):
        schedule.sent(shard, offset)
        schedule.answered(shard, offset, wake_at_ms, NOW)
    return schedule


def test_every_shard_is_ticked_once_after_a_start():
    schedule = Schedule(3, TRIGGER, NOW)
    assert schedule.next_at_ms() == NOW
    assert schedule.due(NOW) == [0, 1, 2]
    assert schedule.due(NOW) == []


def test_a_shard_that_waits_for_nothing_is_left_alone():
    schedule = settled()
    assert schedule.next_at_ms() is None
    assert schedule.due(NOW + 10**9) == []


def test_a_near_wake_is_rounded_up_to_the_trigger():
    schedule = settled(wake_at_ms=NOW + 10_001)
    assert schedule.next_at_ms() == NOW + 10_500
    assert schedule.due(NOW + 10_499) == []
    assert schedule.due(NOW + 10_500) == [0]


def test_a_wake_on_the_trigger_is_not_moved():
    assert settled(wake_at_ms=NOW + 600_000).next_at_ms() == NOW + 600_000


def test_a_far_wake_is_rounded_up_to_the_minute():
    assert settled(wake_at_ms=NOW + 600_001).next_at_ms() == NOW + 660_000


def test_a_wake_that_is_already_past_is_due_at_once():
    schedule = settled(wake_at_ms=NOW - 10_000)
    assert schedule.due(NOW) == [0]


def test_a_tick_without_an_answer_is_sent_again_with_growing_pauses():
    schedule = Schedule(1, TRIGGER, NOW)
    now, pauses = NOW, []
    for _ in range(10):
        assert schedule.due(now) == [0]
        pauses.append(schedule.next_at_ms() - now)
        now = schedule.next_at_ms()
    assert pauses[:4] == [RETICK_MS, 2 * RETICK_MS, 4 * RETICK_MS, 8 * RETICK_MS]
    assert pauses == sorted(pauses)
    assert pauses[-1] == RETICK_MAX_MS


def test_a_call_before_the_tick_does_not_answer_it():
    schedule = settled(wake_at_ms=NOW + 1_000)
    assert schedule.due(NOW + 1_000) == [0]
    schedule.sent(0, 40)
    schedule.answered(0, 39, NOW + 900_000, NOW + 1_001)
    assert schedule.next_at_ms() == NOW + 1_000 + RETICK_MS
    schedule.answered(0, 40, NOW + 900_000, NOW + 1_002)
    assert schedule.next_at_ms() == NOW + 900_000


def test_any_call_tells_what_comes_next_while_no_tick_is_out():
    schedule = settled(wake_at_ms=NOW + 10_000)
    schedule.answered(0, 3, NOW + 2_000, NOW + 1)
    assert schedule.next_at_ms() == NOW + 2_000
    schedule.answered(0, 4, None, NOW + 2)
    assert schedule.next_at_ms() is None


def test_an_answer_starts_the_pauses_anew():
    schedule = settled(wake_at_ms=NOW + 1_000)
    schedule.due(NOW + 1_000)
    schedule.due(NOW + 1_000 + RETICK_MS)
    schedule.answered(0, 9, NOW + 20_000, NOW + 7_000)
    assert schedule.due(NOW + 20_000) == [0]
    assert schedule.next_at_ms() == NOW + 20_000 + RETICK_MS


def test_a_policy_is_sent_to_a_shard_that_lags_and_not_again_at_once():
    schedule = settled()
    assert schedule.lags(0, 1, 2, NOW)
    assert not schedule.lags(0, 1, 2, NOW + RETICK_MS - 1)
    assert schedule.lags(0, 1, 2, NOW + RETICK_MS)


def test_a_newer_policy_is_sent_even_while_another_is_on_its_way():
    schedule = settled()
    assert schedule.lags(0, 1, 2, NOW)
    assert schedule.lags(0, 1, 3, NOW + 1)


def test_a_shard_that_follows_the_newest_policy_does_not_lag():
    schedule = settled()
    assert schedule.lags(0, 1, 2, NOW)
    assert not schedule.lags(0, 2, 2, NOW + 1)
    assert schedule.lags(0, 1, 2, NOW + 2)  # it was set back, so it is asked afresh


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**6)), max_size=30))
def test_no_wake_is_forgotten_or_early(answers):
    schedule, wakes = settled(shards=4), {}
    for offset, (shard, wait_ms) in enumerate(answers, start=10):
        schedule.answered(shard, offset, NOW + wait_ms, NOW)
        wakes[shard] = NOW + wait_ms
    ticked = {}
    while len(ticked) < len(wakes):
        at_ms = schedule.next_at_ms()
        for shard in schedule.due(at_ms):
            ticked.setdefault(shard, at_ms)
    for shard, wake_at_ms in wakes.items():
        late_ms = 60_000 if wake_at_ms - NOW > 600_000 else TRIGGER
        assert wake_at_ms <= ticked[shard] < wake_at_ms + late_ms
