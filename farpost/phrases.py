"""The words of `farpost trace`: times, spans, refusals and states, said plainly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

STATUS_TEXT = {
    "scheduled": "it waits for its time",
    "queued": "it waits for an earlier message of its lane",
    "stored": "it waits for the recipient to fetch it",
    "delivered": "the recipient signed for it",
    "read": "the recipient signed that it was read",
    "taken": "the recipient has it; the sender is not told",
    "cancelled": "the sender took it back in time",
    "expired": "its time ran out before the recipient signed for it",
    "superseded": "a newer message took its place",
    "failed": "it is among the dead letters",
    "unknown": "the hub never accepted such a message",
}

# reason -> (what happened, what to do next)
_REFUSALS = {
    "collision": (
        "another message with the same id, but other content, came from the same sender",
        "The sender must use a fresh id for every message; find out who sent the second one.",
    ),
    "replay": (
        "number {counter} of its lane had already passed",
        "A sender never uses a number twice; find out who sent this copy.",
    ),
    "counter_taken": (
        "another message already holds number {counter} of its lane",
        "A sender never uses a number twice; find out who sent this copy.",
    ),
    "gap_too_large": (
        "number {counter} is too far ahead of what its lane expects (E009)",
        "The sender starts a new session and sends the content again.",
    ),
    "too_many_held": (
        "too many messages of its lane already wait for an earlier one",
        "The sender sends the missing numbers first, then this one again.",
    ),
    "expired": (
        "it had already expired when it came (E010)",
        "Send the content again with a later expiry; check the sender's clock.",
    ),
    "ttl_too_short": (
        "it would expire too soon to be stored",
        "Use a later expiry, or send it live to a connected recipient.",
    ),
    "ttl_too_long": (
        "its expiry is too far ahead",
        "Use an earlier expiry; check the sender's clock.",
    ),
    "live_only": (
        "it is for a connected recipient only and is never stored",
        "Send it while the recipient is connected, or as a stored message.",
    ),
    "scheduled_in_lane": (
        "it is scheduled for later and numbered at the same time",
        "A scheduled message must have the number 0.",
    ),
}

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def stamp(at_ms: int) -> str:
    """A moment in UTC, to the millisecond unless it falls on a whole second."""
    try:
        moment = _EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:  # a signed time may say anything
        return f"{at_ms} ms after 1970"
    text = moment.strftime("%Y-%m-%d %H:%M:%S")
    if at_ms % 1000:
        text += f".{at_ms % 1000:03d}"
    return f"{text} UTC"


def duration(span_ms: int) -> str:
    """A span in at most two units, the way a person would say it."""
    if span_ms < 0:
        return f"-{duration(-span_ms)}"
    if span_ms < 1_000:
        return f"{span_ms} ms"
    if span_ms < 60_000:
        return f"{span_ms / 1000:.1f} s".replace(".0 s", " s")
    for (unit, size), (smaller, part) in pairwise(_UNITS):
        if span_ms >= size:
            whole, rest = divmod(span_ms, size)
            return f"{whole} {unit}" + (f" {rest // part} {smaller}" if rest >= part else "")
    raise AssertionError(span_ms)


def refusal(reason: str | None, counter: int | None, *, security: bool) -> tuple[str, str]:
    """Why a message was refused, and what to do next."""
    what, advice = _REFUSALS.get(
        reason or "", (f"the hub gave the reason {reason or 'none'}", "Ask the hub's operator.")
    )
    text = f"Refused: {what.format(counter=counter)}."
    if security:
        text += " This is a security event."
    return text, advice
