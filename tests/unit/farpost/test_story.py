"""Rows of history become sentences a person understands, and one status word."""

import itertools

import pytest

from farpost.phrases import STATUS_TEXT, duration, refusal, stamp
from farpost.story import Row, status, tell
from schemas.tables import HISTORY_KINDS

NOON = 1_763_467_200_000  # 2025-11-18 12:00:00 UTC
DAY = 86_400_000


def row(kind, offset, **fields):
    defaults = {"at_ms": NOON + offset * 1_000, "partition": 1, "offset": offset, "index": 0}
    return Row(kind=kind, **{**defaults, **fields})


def stored(offset=10, **fields):
    fields = {"position": 7, "counter": 5, "expires_at_ms": NOON + 30 * DAY, **fields}
    return row("stored", offset, **fields)


def held(offset=10, **fields):
    fields = {"counter": 5, "expires_at_ms": NOON + 30 * DAY, **fields}
    return row("held", offset, **fields)


def texts(*rows):
    return [step.text for step in tell(rows).steps]


def test_a_stored_message_says_its_position_and_expiry():
    story = tell([stored()])
    assert story.steps[0].text == (
        "Accepted and stored: the recipient can fetch it at position 7."
        " It expires on 2025-12-18 12:00:00 UTC (in 29 d 23 h)."
    )
    assert story.steps[0].log == "1:10"
    assert story.status == "stored"
    assert story.status_text == (
        "stored: it waits for the recipient to fetch it, until 2025-12-18 12:00:00 UTC"
    )


def test_a_message_that_never_expires_says_so():
    assert texts(stored(expires_at_ms=None))[0].endswith("It never expires.")
    assert tell([stored(expires_at_ms=None)]).status_text.endswith("to fetch it")


def test_the_first_message_of_a_lane_that_began_elsewhere_says_so():
    assert "where the hub begins with this lane" in texts(stored(gap_before=True))[0]


def test_a_held_message_says_what_it_waits_for():
    story = tell([held()])
    assert "number 5 of its lane and an earlier one is missing" in story.steps[0].text
    assert story.status == "queued"


def test_a_scheduled_message_says_when():
    story = tell([row("scheduled", 10, not_before_ms=NOON + DAY)])
    assert "cannot be fetched before 2025-11-19 12:00:00 UTC" in story.steps[0].text
    assert story.status == "scheduled"
    assert "before its time" in texts(row("scheduled", 10))[0]


def test_a_scheduled_message_is_stored_once_it_is_released():
    rows = [row("scheduled", 10), row("released", 20, position=9)]
    assert texts(*rows)[1] == "Released: the recipient can fetch it at position 9."
    assert tell(rows).status == "stored"


def test_a_release_after_a_gap_says_so():
    rows = [
        held(),
        row("gap", 20, counter=2, counter_to=4),
        row("released", 20, index=1, position=9, gap_before=True),
    ]
    assert texts(*rows)[1:] == [
        "The hub gave up waiting for numbers 2 to 4 of the lane, let the later ones go and asked"
        " the sender to send the missing ones again.",
        "Released after a gap: the recipient can fetch it at position 9.",
    ]


def test_only_the_lane_rows_that_had_a_part_in_it_are_told():
    rows = [
        row("void", 1, counter=1),
        held(10),
        row("void", 11, counter=3),
        row("elsewhere", 12, counter=4),
        row("gap", 13, counter=6, counter_to=9),
        row("released", 14, position=2),
        row("gap", 20, counter=1, counter_to=2),
    ]
    assert [step.kind for step in tell(rows).steps] == ["held", "void", "elsewhere", "released"]


def test_a_late_message_is_told_with_the_gap_it_was_in():
    rows = [row("gap", 5, counter=2, counter_to=8), stored(10)]
    assert [step.kind for step in tell(rows).steps] == ["gap", "stored"]


def test_a_message_still_held_is_told_with_what_the_lane_learned_since():
    rows = [held(10), row("void", 11, counter=3)]
    assert texts(*rows)[1] == "The sender said that number 3 of the lane will never come."


def test_the_lane_does_not_matter_to_a_message_without_a_number():
    rows = [stored(counter=0), row("gap", 20, counter=2, counter_to=4)]
    assert [step.kind for step in tell(rows).steps] == ["stored"]


def test_a_word_about_the_lane_that_had_no_effect_says_so():
    rows = [held(10), row("elsewhere", 11, counter=4, reason="gap_too_large")]
    assert "it had no effect (gap_too_large)" in texts(*rows)[1]
    assert (
        "number 4 of the lane went another way"
        in texts(held(10), row("elsewhere", 11, counter=4))[1]
    )


def test_a_duplicate_is_ignored():
    rows = [stored(), row("duplicate", 11)]
    assert texts(*rows)[1] == "The same envelope came again: ignored, the first copy counts."
    assert tell(rows).status == "stored"


def test_many_duplicates_are_one_step():
    steps = tell([stored(), *(row("duplicate", n) for n in range(11, 1_011))]).steps
    assert len(steps) == 2
    assert "1,000 times, last on 2025-11-18 12:16:50 UTC" in steps[1].text


@pytest.mark.parametrize(
    "reason",
    [
        "collision",
        "replay",
        "counter_taken",
        "gap_too_large",
        "too_many_held",
        "expired",
        "ttl_too_short",
        "ttl_too_long",
        "live_only",
        "scheduled_in_lane",
    ],
)
def test_every_refusal_says_why_and_what_to_do_next(reason):
    story = tell([row("refused", 10, reason=reason, counter=5)])
    step = story.steps[0]
    assert step.text.startswith("Refused: ")
    assert reason not in step.text or reason == "expired"
    assert step.next
    assert "Ask the hub's operator" not in step.next
    assert story.status == "failed"
    assert story.status_text == "failed: the hub refused it and kept nothing of it"


def test_an_unknown_refusal_names_its_reason():
    assert refusal("new_rule", None, security=False)[0] == (
        "Refused: the hub gave the reason new_rule."
    )


def test_a_collision_leaves_the_accepted_message_as_it_is():
    rows = [stored(), row("refused", 11, reason="collision", security=True)]
    assert "This is a security event." in texts(*rows)[1]
    assert tell(rows).status == "stored"


def test_a_receipt_delivers():
    rows = [stored(), row("delivered", 20, known=True, said_at_ms=NOON + 19_500)]
    assert texts(*rows)[1] == (
        "Delivered: the recipient signed a receipt on 2025-11-18 12:00:19.500 UTC."
    )
    assert tell(rows).status_text == "delivered: the recipient signed for it"


def test_a_read_message_is_read():
    rows = [stored(), row("delivered", 20, known=True), row("read", 21, known=False)]
    assert texts(*rows)[2] == "Read: the recipient signed so."
    assert tell(rows).status == "read"


def test_a_repeated_receipt_changes_nothing():
    rows = [stored(), row("delivered", 20, known=True), row("delivered", 21, known=False)]
    assert texts(*rows)[2] == "The recipient signed the same again: nothing changed."
    rows = [stored(), row("read", 20, known=True), row("delivered", 21, known=False)]
    assert texts(*rows)[2] == "The recipient signed the same again: nothing changed."
    assert tell(rows).status == "read"


@pytest.mark.parametrize(
    ("exit_row", "word"),
    [
        (row("expired", 20), "expired"),
        (row("cancelled", 20, known=True), "cancelled"),
        (row("dead", 20, reason="push exhausted"), "failed"),
        (row("superseded", 20), "superseded"),
    ],
)
def test_a_late_receipt_repairs_every_side_exit(exit_row, word):
    assert tell([stored(), exit_row]).status == word
    rows = [stored(), exit_row, row("delivered", 30, known=False)]
    assert tell(rows).status == "delivered"
    assert f"It is late (until then: {word}), but a signed receipt counts." in texts(*rows)[2]


def test_a_taken_message_is_not_told_to_the_sender():
    rows = [stored(), row("taken", 20, known=True)]
    assert "does not want the sender to know" in texts(*rows)[1]
    assert tell(rows).status == "taken"


@pytest.mark.parametrize("kind", ["taken", "cancelled"])
def test_a_signal_that_met_no_message_changes_nothing(kind):
    rows = [stored(), row("expired", 20), row(kind, 30, known=False)]
    assert "the hub held no such message at that time: nothing changed" in texts(*rows)[2]
    assert tell(rows).status == "expired"


def test_a_cancelled_message_says_who():
    assert texts(stored(), row("cancelled", 20, known=True))[1].startswith(
        "Cancelled by the sender"
    )


def test_an_expired_message_says_what_to_do():
    assert tell([stored(), row("expired", 20)]).steps[1].next


def test_a_dead_letter_gives_its_reason():
    assert texts(stored(), row("dead", 20, reason="poison"))[1] == (
        "Moved to the dead letters: poison."
    )


def test_a_record_that_was_set_aside_gives_its_reason():
    story = tell([row("quarantined", 10, reason="the signature is not good")])
    assert story.steps[0].text == "Set aside unread: the signature is not good."
    assert story.status == "failed"


def test_a_recipients_words_are_told():
    assert texts(stored(), row("nak", 11, reason="30"))[1].endswith("asks for it in 30 s.")
    assert texts(stored(), row("nak", 11, reason="0"))[1].endswith("asks for it again.")
    assert "never take it (its reason: 4)" in texts(stored(), row("term", 11, reason="4"))[1]
    assert "could not decrypt it" in texts(stored(), row("undecryptable", 11))[1]
    assert texts(row("nak", 11, reason="0", known=False))[0].endswith(
        "The hub held no such message at that time."
    )


def test_a_foreign_receipt_alone_tells_of_no_message():
    assert tell([row("delivered", 10, known=False)]).status == "unknown"


def test_every_kind_of_history_has_a_sentence_of_its_own():
    for kind in HISTORY_KINDS:
        rows = [held(1), row(kind, 10, counter=3, reason=None)]
        assert not texts(*rows)[-1].startswith("Recorded as"), kind


def test_a_kind_that_is_not_known_yet_is_still_told():
    assert texts(stored(), row("moved", 11, reason="why"))[1] == "Recorded as moved (why)."
    assert texts(stored(), row("moved", 11))[1] == "Recorded as moved."


def test_the_story_does_not_depend_on_the_order_of_the_rows():
    rows = [
        held(10),
        row("gap", 20, counter=2, counter_to=4),
        row("released", 20, index=2, position=9),
        row("delivered", 30, known=True),
    ]
    told = tell(rows)
    for mixed in itertools.permutations(rows):
        assert tell(mixed) == told


def test_every_status_has_a_text():
    words = {
        status([row(a, 1), row(b, 2)]) for a in HISTORY_KINDS for b in (*HISTORY_KINDS, "dead")
    }
    assert words <= set(STATUS_TEXT)


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (1_234, "1.2 s"),
        (60_000, "1 min"),
        (61_000, "1 min 1 s"),
        (3_600_000, "1 h"),
        (2 * DAY + 3_600_000, "2 d 1 h"),
        (-1_500, "-1.5 s"),
    ],
)
def test_spans_are_said_in_two_units(span_ms, text):
    assert duration(span_ms) == text


def test_a_signed_time_may_say_anything():
    assert stamp(0) == "1970-01-01 00:00:00 UTC"
    assert stamp(2**63) == f"{2**63} ms after 1970"
