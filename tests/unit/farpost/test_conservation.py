"""Each check of the conservation proof can go red, and says what it found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farpost.conservation import (
    PROBLEMS_SHOWN,
    Finding,
    Link,
    LogPart,
    OutcomeColumns,
    Placed,
    Skipped,
    Verdict,
    inversions,
    judge_accepted_again,
    judge_balance,
    judge_chain,
    judge_in_flight,
    judge_log,
    judge_order,
    judge_positions,
    judge_rows,
    judge_totals,
    judge_unique,
)
from schemas.records import Kind

E, A = Kind.ENVELOPE, Kind.ACK
IDS = [bytes([n]) * 16 for n in range(1, 9)]


def link(number, ranges, next_offsets):
    return Link(number=number, ranges=ranges, next_offsets=next_offsets)


def log_part(kinds, *, start=0, partition=0, end=None):
    end = start + len(kinds) if end is None else end
    ids = b"".join(IDS[at % 8] for at in range(len(kinds)))
    return LogPart(partition=partition, start=start, end=end, kinds=bytes(kinds), ids=ids)


def outcomes(*rows):
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    return OutcomeColumns(
        partitions=columns[0], offsets=columns[1], kinds=columns[2], message_ids=columns[3]
    )


def stored(offset, at=None):
    return (0, offset, "stored", IDS[offset if at is None else at].hex())


# -- offsets ---------------------------------------------------------------------------------


def test_manifests_that_follow_each_other_are_contiguous():
    links = [
        link(1, [(0, 0, 3)], [3, 0]),
        link(2, [(0, 3, 5), (1, 0, 4)], [5, 4]),
        link(3, [], [5, 4]),
    ]
    found = judge_chain(links)
    assert found.ok
    assert found.figure == "contiguous up to 0:5, 1:4"


def test_an_offset_between_two_manifests_is_named():
    found = judge_chain([link(1, [(0, 0, 3)], [3]), link(2, [(0, 4, 6)], [6])])
    assert found.problems == (
        "manifest 2 takes partition 0 up at offset 4, but manifest 1 ended at 3",
    )


def test_a_range_that_does_not_reach_its_next_offset_is_named():
    found = judge_chain([link(1, [(0, 0, 3)], [3]), link(2, [(0, 3, 5)], [6])])
    assert found.problems == ("manifest 2 says [6] come next, its ranges end at [5]",)


def test_a_missing_manifest_is_named():
    assert judge_chain([link(1, [], [3]), link(3, [], [3])]).problems == (
        "manifest 2 is missing or cannot be read",
    )


def test_a_manifest_that_follows_another_file_is_named():
    links = [
        Link(number=1, ranges=[], next_offsets=[3], file_hash="a"),
        Link(number=2, ranges=[], next_offsets=[3], previous_hash="b"),
    ]
    assert judge_chain(links).problems == ("manifest 2 was not written after manifest 1 as it is",)


def test_no_manifest_is_no_problem():
    assert judge_chain([]).figure == "contiguous up to nothing"


# -- totals ----------------------------------------------------------------------------------


def test_totals_agree():
    counts = {"stored": 3, "refused": 1}
    assert judge_totals({**counts, "records": 9}, counts, [4, 5]).ok


def test_a_total_that_differs_is_named():
    found = judge_totals({"stored": 3, "records": 9}, {"stored": 2, "held": 1}, [4, 6])
    assert found.problems == (
        "the manifest counted 3 stored, the tables hold 2",
        "the manifest counted 0 held, the tables hold 1",
        "the manifest counted 9 records, its offsets say 10",
    )


# -- the log ---------------------------------------------------------------------------------


def test_one_outcome_for_each_envelope_is_conserved():
    found = judge_log(
        [log_part([E, A, E, E])],
        outcomes(stored(0), stored(2), (0, 3, "quarantined", None)),
    )
    assert found.ok
    assert found.figure == "3 envelopes in 4 records, one outcome each"


def test_an_envelope_without_outcome_is_lost_and_named():
    found = judge_log([log_part([E, E])], outcomes(stored(0)))
    assert found.lost == 1
    assert found.problems == (f"message {IDS[1].hex()} at 0:1 has no outcome",)


def test_a_second_outcome_is_named():
    found = judge_log([log_part([E])], outcomes(stored(0), (0, 0, "quarantined", None)))
    assert found.problems == (f"message {IDS[0].hex()} at 0:0 has a second outcome, quarantined",)
    assert not found.lost


def test_an_outcome_of_no_envelope_is_named():
    found = judge_log([log_part([A])], outcomes(stored(0)))
    assert found.problems == ("the tables hold stored at 0:0, where the log has no envelope",)


def test_an_outcome_beyond_the_manifest_is_named():
    found = judge_log([log_part([E])], outcomes(stored(0), stored(1)))
    assert found.problems == ("the tables hold stored at 0:1, beyond the manifest",)


def test_an_outcome_under_another_id_is_named():
    found = judge_log([log_part([E])], outcomes(stored(0, at=4)))
    assert found.problems == (f"0:0 is message {IDS[0].hex()}, the tables say {IDS[4].hex()}",)


def test_a_hole_in_the_log_is_named():
    found = judge_log([log_part([E], end=3)], outcomes(stored(0)))
    assert found.problems == ("partition 0 holds 1 records from offset 0 up to 3",)


def test_what_the_log_no_longer_holds_is_not_judged():
    assert judge_log([log_part([E], start=5)], outcomes(stored(2), stored(5, at=0))).ok


def test_many_problems_are_counted_and_the_first_ones_named():
    found = judge_log([log_part([E] * 50)], outcomes())
    assert found.count == found.lost == 50
    assert len(found.problems) == PROBLEMS_SHOWN + 1
    assert found.problems[-1] == "… and 40 more"


# -- balance ---------------------------------------------------------------------------------


def test_what_was_accepted_is_somewhere():
    found = judge_balance(10, 1, {"delivered": 4, "dead": 2, "in_flight": 3, "refused": 7})
    assert found.ok
    assert found.figure == "9 accepted = 4 delivered + 2 dead + 3 in flight"


def test_a_message_that_is_nowhere_is_lost():
    found = judge_balance(10, 0, {"delivered": 9})
    assert found.lost == 1
    assert found.problems == ("10 messages were accepted, 9 are accounted for",)


def test_a_message_too_many_is_a_problem_but_none_is_lost():
    found = judge_balance(8, 0, {"delivered": 9})
    assert not found.ok
    assert found.lost == 0


def test_nothing_is_balanced():
    assert judge_balance(0, 0, {}).figure == "0 accepted = 0"


def test_a_settled_message_may_be_accepted_again_but_a_pending_one_may_not():
    assert judge_accepted_again([("m", "stored"), ("m", "expired"), ("m", "stored")]).ok
    found = judge_accepted_again([("m", "held"), ("n", "stored"), ("m", "stored")])
    assert found.problems == ("message m was accepted again while it was pending",)


def test_a_message_in_flight_needs_its_envelope_and_must_not_be_overdue():
    assert judge_in_flight(3, [], []).ok
    found = judge_in_flight(3, ["a"], ["b"])
    assert found.lost == 1
    assert found.problems == (
        "message a is in flight, but its envelope is gone",
        "message b is stuck: it should have expired",
    )


# -- positions and order ---------------------------------------------------------------------


def test_a_position_given_twice_is_named():
    assert judge_positions(5, []).ok
    found = judge_positions(5, [("abc", 7, 2)])
    assert found.count == 1
    assert found.problems == ("position 7 of mailbox abc was given 2 times",)


def placed(counter, position, **fields):
    defaults = {
        "message_id": f"m{counter}",
        "offset": position,
        "at_ms": position,
        "expires_at_ms": 1_000_000,
        "gap_before": False,
    }
    return Placed(counter=counter, position=position, **{**defaults, **fields})


def lane(*counters):
    return [placed(counter, position) for position, counter in enumerate(counters, start=1)]


def test_growing_counters_are_in_order():
    assert inversions(lane(1, 2, 5, 6), []) == []


def test_a_counter_behind_a_later_one_is_an_inversion():
    assert [row.counter for row in inversions(lane(1, 3, 2, 4), [])] == [2]


def test_a_counter_given_twice_is_an_inversion():
    assert [row.position for row in inversions(lane(1, 2, 2), [])] == [3]


def test_a_late_counter_of_a_recorded_gap_is_none():
    gap = Skipped(low=2, high=4, offset=2)
    assert inversions(lane(1, 5, 3, 2, 6), [gap]) == []


def test_a_skipped_counter_is_deliverable_once():
    gap = Skipped(low=2, high=4, offset=2)
    assert [row.position for row in inversions(lane(1, 5, 3, 3), [gap])] == [4]


def test_a_gap_recorded_later_excuses_nothing():
    gap = Skipped(low=2, high=4, offset=9)
    assert [row.counter for row in inversions(lane(1, 5, 3), [gap])] == [3]


def test_a_late_counter_does_not_lower_what_was_reached():
    gap = Skipped(low=2, high=2, offset=1)
    assert [row.counter for row in inversions(lane(1, 5, 2, 4), [gap])] == [4]


def test_a_row_that_tells_of_a_gap_before_it_begins_anew():
    rows = [*lane(100, 101), placed(5, 3, gap_before=True), placed(6, 4)]
    assert inversions(rows, []) == []


def test_a_lane_begins_anew_after_all_it_held_has_expired():
    rows = [placed(9, 1, expires_at_ms=50), placed(1, 2, at_ms=50), placed(2, 3, at_ms=50)]
    assert inversions(rows, []) == []
    rows = [placed(9, 1, expires_at_ms=51), placed(1, 2, at_ms=50)]
    assert [row.counter for row in inversions(rows, [])] == [1]


def test_a_lane_that_never_expires_is_never_forgotten_here():
    rows = [placed(9, 1, expires_at_ms=None), placed(1, 2, at_ms=10**15)]
    assert [row.counter for row in inversions(rows, [])] == [1]


def test_an_inversion_is_named():
    found = judge_order(3, {"a → b": (lane(1, 3, 2), [])})
    assert found.count == 1
    assert found.problems == (
        "message m2 (number 2 of a → b) got position 3, after a later number and outside any"
        " recorded gap",
    )
    assert judge_order(3, {}).ok


@given(st.permutations(range(1, 8)))
def test_a_lane_has_no_inversion_exactly_if_it_is_sorted(counters):
    assert (inversions(lane(*counters), []) == []) == (counters == sorted(counters))


# -- tables ----------------------------------------------------------------------------------


def test_rows_missing_from_a_table_are_named():
    assert judge_rows({"inbox": 3}, {"inbox": 3}).ok
    assert judge_rows({"inbox": 3}, {}).problems == (
        "table inbox holds 0 rows, the manifest says 3",
    )


def test_a_row_appended_twice_is_named():
    assert judge_unique({"inbox": []}).ok
    assert judge_unique({"inbox": [(1, 22, 0, 2)]}).problems == (
        "table inbox holds row 1:22:0 2 times",
    )


# -- the verdict -----------------------------------------------------------------------------


def verdict(*findings, log_checked=True):
    return Verdict(
        findings=findings,
        outcomes={"delivered": 3, "refused": 2},
        accepted=3,
        envelopes=1_234,
        log_checked=log_checked,
    )


def test_a_good_verdict_is_one_line():
    assert verdict(judge_positions(3, [])).sentence() == (
        "conserved: 1,234 envelopes, 0 lost, 0 duplicate positions, 0 inversions"
    )
    assert verdict(log_checked=False).sentence().endswith("; the log was not checked")


def test_a_bad_verdict_has_the_figures():
    bad = verdict(
        judge_positions(5, [("abc", 7, 2)]),
        judge_order(3, {"a → b": (lane(1, 3, 2), [])}),
        judge_in_flight(3, ["a"], []),
    )
    assert bad.sentence() == (
        "NOT conserved: 1,234 envelopes, 1 lost, 1 duplicate positions, 1 inversions"
    )
    figures = bad.figures()
    assert figures["conserved"] is False
    assert len(figures["problems"]) == 3
    assert figures["delivered"] == 3


@pytest.mark.parametrize(
    "name",
    [
        *("conserved", "lost", "duplicate_positions", "inversions", "accepted", "problems"),
        *("delivered", "taken", "expired", "dead", "cancelled", "superseded", "in_flight"),
    ],
)
def test_a_program_finds_every_figure(name):
    assert name in verdict().figures()


def test_one_red_finding_is_enough():
    assert verdict(Finding(name="a", figure="")).conserved
    assert not verdict(Finding(name="a", figure="", count=1)).conserved
