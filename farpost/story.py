"""What happened to one message, in words a person understands, and the status it has now.

The rows of `history` are the only source: nothing here reads a clock, so the same rows always
tell the same story.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from farpost.phrases import STATUS_TEXT, duration, refusal, stamp

ACCEPTED = ("stored", "held", "scheduled")
_LANE_KINDS = ("gap", "void", "elsewhere")
_ENDS_OF_WAIT = ("released", "expired", "cancelled", "delivered", "read", "taken")
_REPEATS_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of history as far as a story needs it; also a dead letter, under the kind `dead`,
    and a record that was set aside, under `quarantined`."""

    kind: str
    at_ms: int
    partition: int
    offset: int
    index: int = 0
    message_id: str = ""
    reason: str | None = None
    attempt: int | None = None
    counter: int | None = None
    counter_to: int | None = None
    position: int | None = None
    known: bool | None = None
    security: bool = False
    said_at_ms: int | None = None
    expires_at_ms: int | None = None
    not_before_ms: int | None = None  # from the inbox row
    gap_before: bool = False  # from the inbox row


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One sentence of the story, with its time and the place in the log that caused it."""

    at_ms: int
    log: str  # partition:offset
    kind: str
    text: str
    next: str | None = None  # what the reader can do about it


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    status: str
    status_text: str
    steps: tuple[Step, ...]


def tell(rows: Iterable[Row]) -> Story:
    """Tell the rows of one message (and of its lane) in the order of the log."""
    ordered = sorted(rows, key=lambda row: (row.partition, row.offset, row.index))
    told = _relevant(ordered)
    steps: list[Step] = []
    earlier: list[Row] = []
    for group in _grouped(told):
        steps.append(_step(group, earlier))
        earlier += group
    word = status(ordered)
    return Story(status=word, status_text=_status_text(word, told), steps=tuple(steps))


def status(rows: Sequence[Row]) -> str:
    """The word for where a message stands; `messages.status` of `farpost sql` says the same."""
    kinds = {row.kind for row in rows if _counts(row)}
    if not kinds.intersection(ACCEPTED):
        return "failed" if kinds.intersection(("refused", "quarantined")) else "unknown"
    for kind, word in (
        ("read", "read"),
        ("delivered", "delivered"),
        ("taken", "taken"),
        ("cancelled", "cancelled"),
        ("expired", "expired"),
        ("superseded", "superseded"),
        ("dead", "failed"),
        ("stored", "stored"),
        ("released", "stored"),
        ("held", "queued"),
    ):
        if kind in kinds:
            return word
    return "scheduled"


def _counts(row: Row) -> bool:
    """A signal that met no such message changed nothing; a late receipt always counts."""
    return row.known is not False or row.kind in ("delivered", "read")


def _relevant(rows: Sequence[Row]) -> list[Row]:
    """Drop the rows of the lane that had no part in this message's way."""
    own = next((row for row in rows if row.kind in ACCEPTED and row.counter), None)
    return [
        row
        for row in rows
        if row.kind not in _LANE_KINDS or (own is not None and _concerns(row, own, rows))
    ]


def _concerns(row: Row, own: Row, rows: Sequence[Row]) -> bool:
    """Whether a row of the lane spoke of this message, or of one it was waiting for."""
    number = own.counter or 0
    low = row.counter or 0
    if low <= number <= (row.counter_to or low):
        return True
    ends = [_place(end) for end in rows if end.kind in _ENDS_OF_WAIT]
    waited = own.kind == "held" and _place(own) < _place(row)
    return waited and low < number and (not ends or _place(row) <= min(ends))


def _place(row: Row) -> tuple[int, int]:
    return row.offset, row.index


def _grouped(rows: Sequence[Row]) -> list[list[Row]]:
    """Neighbouring repeats become one group once there are too many to show one by one."""
    groups: list[list[Row]] = []
    for row in rows:
        alike = (
            groups
            and row.kind == groups[-1][0].kind
            and row.reason == groups[-1][0].reason
            and row.kind in ("duplicate", "refused", "delivered", "read")
        )
        if alike:
            groups[-1].append(row)
        else:
            groups.append([row])
    return [
        part
        for group in groups
        for part in ([group] if len(group) > _REPEATS_SHOWN else [[row] for row in group])
    ]


def _step(group: Sequence[Row], earlier: Sequence[Row]) -> Step:
    row = group[0]
    text, advice = _sentence(row, earlier)
    if len(group) > 1:
        text = f"{text} This happened {len(group):,} times, last on {stamp(group[-1].at_ms)}."
    return Step(
        at_ms=row.at_ms, log=f"{row.partition}:{row.offset}", kind=row.kind, text=text, next=advice
    )


def _sentence(row: Row, earlier: Sequence[Row]) -> tuple[str, str | None]:
    """What one row means, and what to do next if there is something to do."""
    if row.kind in ACCEPTED:
        return _accepted(row), None
    if row.kind == "refused":
        return refusal(row.reason, row.counter, security=row.security)
    if row.kind in ("delivered", "read", "taken", "cancelled"):
        return _settled(row, earlier)
    if row.kind in _LANE_KINDS:
        return _lane(row), None
    if row.kind in ("nak", "term", "undecryptable"):
        return _word_of_recipient(row)
    if row.kind == "duplicate":
        return "The same envelope came again: ignored, the first copy counts.", None
    if row.kind == "released":
        after = " after a gap" if row.gap_before else ""
        return f"Released{after}: the recipient can fetch it at position {row.position}.", None
    if row.kind == "expired":
        return (
            "Expired before the recipient signed for it.",
            "Send the content again as a new message if it still matters.",
        )
    if row.kind == "quarantined":
        return f"Set aside unread: {row.reason}.", "Look at it with: farpost sql"
    if row.kind == "dead":
        return f"Moved to the dead letters: {row.reason}.", None
    reason = f" ({row.reason})" if row.reason else ""
    return f"Recorded as {row.kind}{reason}.", None


def _accepted(row: Row) -> str:
    if row.expires_at_ms is None:
        until = "It never expires."
    else:
        until = (
            f"It expires on {stamp(row.expires_at_ms)}"
            f" (in {duration(row.expires_at_ms - row.at_ms)})."
        )
    if row.kind == "stored":
        after = " It is where the hub begins with this lane." if row.gap_before else ""
        return (
            f"Accepted and stored: the recipient can fetch it at position {row.position}."
            f"{after} {until}"
        )
    if row.kind == "held":
        return (
            f"Accepted and held: it is number {row.counter} of its lane and an earlier one"
            f" is missing. {until}"
        )
    when = f" before {stamp(row.not_before_ms)}" if row.not_before_ms else " before its time"
    return f"Accepted and scheduled: it cannot be fetched{when}. {until}"


def _settled(row: Row, earlier: Sequence[Row]) -> tuple[str, str | None]:
    said = f" on {stamp(row.said_at_ms)}" if row.said_at_ms else ""
    before = status(earlier)
    if row.known is False and row.kind in ("taken", "cancelled"):
        who = "recipient" if row.kind == "taken" else "sender"
        return (
            f"The {who} asked{said} to mark it {row.kind}, but the hub held no such message"
            " at that time: nothing changed.",
            None,
        )
    if row.kind == "taken":
        return f"Taken{said}: the recipient has it and does not want the sender to know.", None
    if row.kind == "cancelled":
        return f"Cancelled by the sender{said}, before the recipient signed for it.", None
    if row.kind in {before, "delivered" if before == "read" else ""}:
        return f"The recipient signed the same again{said}: nothing changed.", None
    text = (
        "Delivered: the recipient signed a receipt"
        if row.kind == "delivered"
        else "Read: the recipient signed so"
    )
    text += said
    if row.known is False and before not in ("delivered", "read"):
        text += f". It is late (until then: {before}), but a signed receipt counts"
    return f"{text}.", None


def _lane(row: Row) -> str:
    low, high = row.counter, row.counter_to or row.counter
    span = f"number {low}" if low == high else f"numbers {low} to {high}"
    if row.kind == "gap":
        return (
            f"The hub gave up waiting for {span} of the lane, let the later ones go and asked"
            " the sender to send the missing ones again."
        )
    if row.reason is not None:
        return f"The sender spoke of {span} of the lane; it had no effect ({row.reason})."
    if row.kind == "void":
        return f"The sender said that {span} of the lane will never come."
    return f"The sender said that {span} of the lane went another way."


def _word_of_recipient(row: Row) -> tuple[str, str | None]:
    unknown = "" if row.known is not False else " The hub held no such message at that time."
    if row.kind == "nak":
        delay = f" in {row.reason} s" if row.reason and row.reason != "0" else " again"
        return f"The recipient could not take it yet and asks for it{delay}.{unknown}", None
    if row.kind == "term":
        return (
            f"The recipient will never take it (its reason: {row.reason}).{unknown}",
            "Ask the recipient, or cancel the message.",
        )
    return (
        f"The recipient could not decrypt it.{unknown}",
        "The sender seals the same content again in a new session.",
    )


def _status_text(word: str, rows: Sequence[Row]) -> str:
    last = {row.kind: row for row in rows if _counts(row)}
    if word == "failed" and "dead" not in last:
        return "failed: the hub refused it and kept nothing of it"
    accepted = [row for row in rows if row.kind in ACCEPTED]
    text = f"{word}: {STATUS_TEXT[word]}"
    if word in ("stored", "queued", "scheduled") and accepted:
        expires_at_ms = accepted[-1].expires_at_ms
        if expires_at_ms is not None:
            text += f", until {stamp(expires_at_ms)}"
    return text
