"""From an id, or the beginning of one, to the rows that tell a message's story."""

from __future__ import annotations

import re
from dataclasses import dataclass

from farpost.answers import Answers
from farpost.phrases import stamp
from farpost.story import Row
from schemas.errors import BadQuery, NotFound
from schemas.records import Kind

CANDIDATES_SHOWN = 10
_HEX = re.compile(r"[0-9a-f]*")
_FIRST = "('stored', 'held', 'scheduled', 'duplicate', 'refused')"

# Where an envelope's id, recipient and sender lie in the hex text of its record.
_SET_ASIDE = f"""
    select "partition", "offset", "index", at_ms, code, reason,
        substr(head, 15, 32) as message_id, substr(head, 47, 64) as recipient,
        substr(head, 111, 64) as sender
    from (select "partition", "offset", "index", at_ms, code, reason,
            substr(encode(value, 'hex'), 1, 174) as head
        from quarantine where kind = {int(Kind.ENVELOPE)})
"""  # noqa: S608  constants only


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageKey:
    """What names one message: an id alone may be used by two senders or for two mailboxes."""

    recipient: str
    sender: str
    message_id: str


def find_message(
    answers: Answers, prefix: str, *, sender: str = "", recipient: str = ""
) -> MessageKey:
    """The one message that fits; NotFound or BadQuery say what to do if it is none or several."""
    conditions = " and ".join(
        f"{column} >= '{value}' and {column} < '{value}g'"  # hex digits only: 'g' follows them all
        for column, value in (
            ("message_id", _hex("id", prefix, 32, least=1)),
            ("sender", _hex("sender", sender, 64)),
            ("recipient", _hex("recipient", recipient, 64)),
        )
        if value
    )
    for source in (
        f"history where kind in {_FIRST} and",
        f"({_SET_ASIDE}) s where",
        "history where",
    ):
        found = answers.query(
            f"select recipient, sender, message_id, min(at_ms) as at_ms from {source} {conditions}"  # noqa: S608
            f" group by recipient, sender, message_id order by at_ms limit {CANDIDATES_SHOWN + 1}"
        ).to_pylist()
        if len(found) == 1:
            return MessageKey(**{name: found[0][name] for name in MessageKey.__slots__})
        if found:
            raise BadQuery(_ambiguous(prefix, found))
    raise NotFound(
        f"no message whose id begins with {prefix} is in the tables as of manifest"
        f" {answers.manifest.number:,} ({stamp(answers.manifest.created_at_ms)}): if it was sent"
        " just now, ask again in a moment, else look at the sender's outbox"
    )


def rows_of(answers: Answers, key: MessageKey) -> list[Row]:
    """Every row about a message, its lane, its dead letter and its copies that were set aside."""
    return [
        *_history(answers, key),
        *_dead_letters(answers, key),
        *_set_aside(answers, key),
    ]


def _history(answers: Answers, key: MessageKey) -> list[Row]:
    columns = (
        'h."partition", h."offset", h."index", h.kind, h.at_ms, h.message_id, h.reason, h.attempt,'
        ' h.counter, h.counter_to, h."position", h.known, h.security, h.said_at_ms,'
        " h.expires_at_ms"
    )
    mailbox = f"h.recipient = '{key.recipient}' and h.sender = '{key.sender}'"
    own = answers.query(
        f"select {columns}, h.session_id, h.priority from history h"  # noqa: S608
        f" where {mailbox} and h.message_id = '{key.message_id}'"
    ).to_pylist()
    inbox = {(row["offset"], row["kind"]): row for row in _inbox(answers, key)}
    lanes = {(row["session_id"], row["priority"]) for row in own if row["counter"]}
    rows = []
    for row in own:
        beside = inbox.get((row["offset"], row["kind"]), {})
        rows.append(_row({**row, **beside, "session_id": None, "priority": None}))
    for session_id, priority in lanes:
        rows += [
            _row(row)
            for row in answers.query(
                f"select {columns} from history h where {mailbox} and h.message_id is null"  # noqa: S608
                f" and h.session_id = '{session_id}' and h.priority = {priority}"
            ).to_pylist()
        ]
    return rows


def _inbox(answers: Answers, key: MessageKey) -> list[dict[str, object]]:
    found: list[dict[str, object]] = answers.query(
        'select "offset", kind, not_before_ms, gap_before from inbox'  # noqa: S608
        f" where recipient = '{key.recipient}' and sender = '{key.sender}'"
        f" and message_id = '{key.message_id}'"
    ).to_pylist()
    return found


def _dead_letters(answers: Answers, key: MessageKey) -> list[Row]:
    found = answers.query(
        'select "partition", "offset", "index", reason, moved_at_ms as at_ms from dead_letters'  # noqa: S608
        f" where category <> 'cancelled' and recipient = '{key.recipient}'"
        f" and sender = '{key.sender}' and message_id = '{key.message_id}'"
    ).to_pylist()
    return [_row({**row, "kind": "dead"}) for row in found]


def _set_aside(answers: Answers, key: MessageKey) -> list[Row]:
    found = answers.query(
        'select "partition", "offset", "index", at_ms, reason'  # noqa: S608
        f" from ({_SET_ASIDE}) s where recipient = '{key.recipient}'"
        f" and sender = '{key.sender}' and message_id = '{key.message_id}'"
    ).to_pylist()
    return [_row({**row, "kind": "quarantined"}) for row in found]


def _row(values: dict[str, object]) -> Row:
    kept = {name: value for name, value in values.items() if value is not None}
    return Row(**kept)  # type: ignore[arg-type]


def _hex(name: str, text: str, size: int, *, least: int = 0) -> str:
    text = text.strip().lower()
    if not least <= len(text) <= size or not _HEX.fullmatch(text):
        raise BadQuery(
            f"the {name} is {size} hex digits, or the first few of them, not {text[:80]!r}"
        )
    return text


def _ambiguous(prefix: str, found: list[dict[str, str]]) -> str:
    lines = [
        f"  {row['message_id']}  {row['sender'][:16]}… → {row['recipient'][:16]}…"
        for row in found[:CANDIDATES_SHOWN]
    ]
    if len(found) > CANDIDATES_SHOWN:
        lines.append("  …")
    return (
        f"{prefix} fits more than one message; give more digits, or --sender or --recipient:\n"
        + "\n".join(lines)
    )
