"""The check over real Delta tables, without a JVM: what is right is green, the rest is red."""

import pytest

from farpost.answers import open_answers
from farpost.check import check_tables
from farpost.refold import can_refold, refold
from farpost.retained import Retained, read_log, retained, summarize
from schemas.errors import LogChanged
from schemas.signals import SignalKind
from schemas.tables import TABLES
from tests.factories import NOW_S, address, device, message_id
from tests.unit.farpost.made_up import PARTITIONS, SHARDS, TOPIC, FakeConsumer, Hub

# kafka-python reads its own files in a way that Python 3.11 calls old.
pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")


@pytest.fixture
def hub(tmp_path):
    return Hub(tmp_path)


# -- check -----------------------------------------------------------------------------------


def verdict(hub, *, log=None, links=(), begins=None):
    answers = open_answers(hub.data)
    log = hub.log if log is None else log
    ends = answers.manifest.next_offsets
    span = Retained(starts=begins or [0] * PARTITIONS, ends=ends)
    parts, times_ms = summarize(read_log(FakeConsumer(log), TOPIC, span), span)
    return check_tables(answers, links, parts, times_ms=times_ms, shards=SHARDS)


def problems(hub, **options):
    found = verdict(hub, **options)
    assert not found.conserved
    return "\n".join(found.figures()["problems"])


def column(table, name):
    return [one.name for one in TABLES[table].columns].index(name)


def test_a_busy_hub_is_conserved(hub):
    hub.be_busy()
    hub.commit()
    found = verdict(hub)
    assert found.figures()["problems"] == []
    figures = found.figures()
    assert {name: figures[name] for name in ("lost", "duplicate_positions", "inversions")} == {
        "lost": 0,
        "duplicate_positions": 0,
        "inversions": 0,
    }
    assert figures["accepted"] == 9
    assert figures["delivered"] == 2
    assert figures["taken"] == figures["cancelled"] == figures["expired"] == 1
    assert figures["in_flight"] == 4
    assert figures["envelopes"] == 12


def test_a_hub_committed_in_pieces_is_conserved(hub):
    hub.envelope(n=1)
    hub.commit()
    hub.envelope(n=3)
    hub.commit()
    hub.envelope(n=2)
    hub.commit()
    assert verdict(hub).conserved


def test_a_hub_with_nothing_but_ticks_is_conserved(hub):
    hub.tick()
    hub.commit()
    assert verdict(hub).sentence().startswith("conserved: 0 envelopes")


def test_records_above_the_manifest_do_not_count_yet(hub):
    hub.be_busy()
    hub.commit()
    hub.envelope(n=50)
    assert verdict(hub).conserved


def test_a_trimmed_log_is_judged_as_far_as_it_goes(hub):
    hub.be_busy()
    hub.commit()
    begins = [min(3, end) for end in open_answers(hub.data).manifest.next_offsets]
    kept = [record for record in hub.log if record[1] >= begins[record[0]]]
    assert verdict(hub, log=kept, begins=begins).conserved


def test_without_the_log_the_tables_are_judged(hub):
    hub.be_busy()
    hub.commit()
    found = check_tables(open_answers(hub.data), [], None, times_ms={}, shards=SHARDS)
    assert found.conserved
    assert found.sentence().endswith("the log was not checked")


def test_a_lost_outcome_is_named(hub):
    hub.envelope(n=1)
    hub.envelope(n=2)
    hub.commit(change=lambda tables: tables["history"].pop())
    text = problems(hub)
    assert f"message {message_id(2).hex()}" in text
    assert "has no outcome" in text
    assert "the manifest counted 2 stored, the tables hold 1" in text
    assert verdict(hub).figures()["lost"] == 1


def test_a_row_appended_twice_is_named(hub):
    hub.envelope(n=1)
    hub.commit(change=lambda tables: tables["inbox"].append(tables["inbox"][0]))
    text = problems(hub)
    assert "table inbox holds row" in text
    assert "was given 2 times" in text
    assert verdict(hub).figures()["duplicate_positions"] == 1


def test_a_manifest_that_says_another_number_of_rows_is_named(hub):
    hub.envelope(n=1)
    hub.rows["inbox"] = 1
    hub.commit()
    assert "table inbox holds 1 rows, the manifest says 2" in problems(hub)


def test_an_envelope_that_is_gone_is_lost(hub):
    def lose(tables):
        tables["inbox"][0][column("inbox", "envelope")] = None

    hub.envelope(n=1)
    hub.commit(change=lose)
    assert f"message {message_id(1).hex()} is in flight, but its envelope is gone" in problems(hub)
    assert verdict(hub).figures()["lost"] == 1


def test_a_message_that_outlived_its_expiry_is_stuck(hub):
    def forget(tables):
        tables["history"][:] = [
            row for row in tables["history"] if row[column("history", "kind")] != "expired"
        ]

    hub.envelope(n=1, expires_at_s=NOW_S + 4_000)
    hub.tick(after_ms=5_000_000)
    hub.commit(change=forget)
    assert f"message {message_id(1).hex()} is stuck" in problems(hub)


def test_a_message_whose_shard_has_not_seen_the_time_is_not_stuck(hub):
    hub.envelope(n=1, expires_at_s=NOW_S + 4_000)
    other = next(device(n) for n in range(3, 99) if address(device(n)) and _shard(n) != _shard(2))
    hub.tick(recipient=other, after_ms=5_000_000)
    hub.commit()
    assert verdict(hub).conserved


def _shard(n):
    from schemas.records import shard_of

    return shard_of(address(device(n)), SHARDS)


def test_an_inversion_is_named(hub):
    def swap(tables):
        first, second = tables["inbox"][:2]
        at = column("inbox", "position")
        first[at], second[at] = second[at], first[at]

    hub.envelope(n=1)
    hub.envelope(n=2)
    hub.commit(change=swap)
    assert "outside any recorded gap" in problems(hub)
    assert verdict(hub).figures()["inversions"] == 1


def test_a_late_message_without_its_gap_is_an_inversion(hub):
    def hide_gap(tables):
        tables["history"][:] = [
            row for row in tables["history"] if row[column("history", "kind")] != "gap"
        ]

    hub.envelope(n=2)
    hub.tick(after_ms=400_000)
    hub.envelope(n=1)
    hub.commit()
    assert verdict(hub).conserved
    other = Hub(hub.data / "other")
    other.log, other._next = hub.log, hub._next
    other.commit(change=hide_gap)
    assert verdict(other).figures()["inversions"] == 1


def test_a_counter_that_went_elsewhere_may_come_late(hub):
    hub.lane_signal(kind=SignalKind.ELSEWHERE, counter=1)
    hub.envelope(n=2)
    hub.envelope(n=1)
    hub.commit()
    assert verdict(hub).conserved


def test_a_pending_message_accepted_again_is_named(hub):
    def accept(tables):
        tables["history"][1][column("history", "kind")] = "stored"

    hub.envelope(n=1)
    hub.envelope(n=1)
    hub.commit(change=accept)
    assert "was accepted again while it was pending" in problems(hub)


def test_a_signal_of_another_message_under_the_outcome_is_named(hub):
    def rename(tables):
        tables["history"][0][column("history", "message_id")] = message_id(9).hex()

    hub.envelope(n=1)
    hub.commit(change=rename)
    assert f"is message {message_id(1).hex()}, the tables say {message_id(9).hex()}" in problems(
        hub
    )


def test_a_log_that_ends_before_the_manifest_is_another_log():
    with pytest.raises(LogChanged, match="ends at offset 3"):
        retained(TOPIC, {0: 0}, {0: 3}, [4])
    assert retained(TOPIC, {0: 7, 1: 1}, {0: 9, 1: 9}, [5, 6]) == Retained(
        starts=[5, 1], ends=[5, 6]
    )


# -- refold ----------------------------------------------------------------------------------


def refolded(hub):
    return refold(open_answers(hub.data), hub.log, shards=SHARDS, partitions=PARTITIONS)


def test_a_new_fold_gives_the_same_rows(hub):
    hub.be_busy()
    hub.commit()
    found = refolded(hub)
    assert found.problems == ()
    assert found.figure.endswith("rows equal a new fold of the log")


def test_a_value_that_differs_is_named(hub):
    def spoil(tables):
        tables["inbox"][0][column("inbox", "envelope")] = b"?"
        tables["history"].pop()
        extra = list(tables["history"][0])
        extra[1] = 1_000
        tables["history"].append(extra)

    hub.envelope(n=1)
    hub.envelope(n=2)
    hub.envelope(n=3)
    hub.commit(change=spoil)
    text = refolded(hub).problems
    assert any("table inbox row" in line and "differs in envelope" in line for line in text)
    assert any("table history lacks row" in line for line in text)
    assert any("which the fold does not give" in line for line in text)


def test_rows_missing_at_the_end_are_named(hub):
    hub.envelope(n=1)
    hub.commit(change=lambda tables: tables["inbox"].clear())
    assert any("table inbox lacks row" in line for line in refolded(hub).problems)


def test_only_a_whole_log_can_be_folded_again():
    assert can_refold(Retained(starts=[0, 0], ends=[1, 1]))
    assert not can_refold(Retained(starts=[0, 1], ends=[1, 1]))
