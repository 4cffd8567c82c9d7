"""The conservation proof over a hub's tables: ask the tables, let `conservation` judge.

The heavy part is SQL over the whole tables; only totals, and whatever looks wrong, come back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from farpost import conservation as judge
from farpost.answers import Answers
from farpost.conservation import Finding, Link, LogPart, OutcomeColumns, Placed, Skipped, Verdict
from schemas.records import Kind, shard_of

STUCK_MS = 60_000  # a message may be this much past its expiry before it counts as stuck
_FIRST = "('stored', 'held', 'scheduled', 'duplicate', 'refused')"
_ACCEPTED = "('stored', 'held', 'scheduled')"
_LANE = "recipient, sender, session_id, priority"

# Numbered messages with the first position each was given.
_PLACED = f"""
    select {_LANE}, message_id, min("position") as "position", max(counter) as counter,
        min("offset") as "offset", min(received_at_ms) as at_ms,
        max(expires_at_ms) as expires_at_ms,
        max(case when gap_before then 1 else 0 end) as gap_before
    from inbox where "position" is not null and counter > 0 group by {_LANE}, message_id
"""  # noqa: S608  constants only

# Lanes in which some position went to a counter that is not above all before it.
_SUSPECT = f"""
    select distinct {_LANE} from (
        select {_LANE}, counter, max(counter) over (
            partition by {_LANE} order by "position"
            rows between unbounded preceding and 1 preceding) as highest from ({_PLACED}) placed
    ) seen where counter <= highest
"""  # noqa: S608  constants only


def check_tables(
    answers: Answers,
    links: Sequence[Link],
    parts: Sequence[LogPart] | None,
    *,
    times_ms: Mapping[int, int],
    shards: int,
) -> Verdict:
    """Judge all of it; `parts` is None if the log could not be read, `times_ms` is by shard."""
    manifest = answers.manifest
    found = _first_outcomes(answers)
    outcomes = {
        row["outcome"]: row["messages"]
        for row in answers.query(
            "select outcome, count(*) as messages from messages group by outcome"
        ).to_pylist()
    }
    accepted = found["stored"] + found["held"] + found["scheduled"]
    again, accepted_again = _accepted_again(answers)
    findings = [
        judge.judge_chain(links),
        judge.judge_totals(manifest.totals, found, manifest.next_offsets),
        judge.judge_rows(
            {name: state.rows_total for name, state in manifest.tables.items()},
            {name: _count(answers, name) for name in answers.tables},
        ),
        judge.judge_unique({name: _repeated(answers, name) for name in answers.tables}),
        judge.judge_balance(accepted, again, outcomes),
        accepted_again,
        _in_flight(answers, outcomes.get("in_flight", 0), times_ms, shards),
        _positions(answers),
        _order(answers),
    ]
    if parts is not None:
        findings.insert(2, judge.judge_log(parts, _outcome_columns(answers)))
    return Verdict(
        findings=tuple(findings),
        outcomes=outcomes,
        accepted=accepted - again,
        envelopes=sum(found[kind] for kind in judge.FIRST_OUTCOMES[:5]) + _set_aside(answers),
        log_checked=parts is not None,
    )


def _first_outcomes(answers: Answers) -> dict[str, int]:
    """How many records had each first outcome, as the tables tell it."""
    found = dict.fromkeys(judge.FIRST_OUTCOMES, 0)
    for row in answers.query(
        f"select kind, count(*) as records from history where kind in {_FIRST} group by kind"  # noqa: S608
    ).to_pylist():
        found[row["kind"]] = row["records"]
    # A timer that failed leaves a row too, beside the outcome of the record that set it off.
    found["quarantined"] = _one(
        answers,
        'select count(*) as n from (select distinct "partition", "offset" from quarantine'  # noqa: S608
        f' except select "partition", "offset" from history where kind in {_FIRST}) q',
    )
    return found


def _set_aside(answers: Answers) -> int:
    """Envelopes among the records that were set aside."""
    return _one(
        answers,
        f"select count(*) as n from quarantine where kind = {int(Kind.ENVELOPE)}",  # noqa: S608
    )


def _outcome_columns(answers: Answers) -> OutcomeColumns:
    found: Any = answers.query(
        f'select "partition", "offset", kind, message_id from history where kind in {_FIRST}'  # noqa: S608
        """ union all select "partition", "offset", 'quarantined', null from quarantine"""
        f" where kind = {int(Kind.ENVELOPE)}"
    )
    return OutcomeColumns(
        partitions=found["partition"].to_pylist(),
        offsets=found["offset"].to_pylist(),
        kinds=found["kind"].to_pylist(),
        message_ids=found["message_id"].to_pylist(),
    )


def _accepted_again(answers: Answers) -> tuple[int, Finding]:
    keys = "recipient, sender, message_id"
    twice = f"select {keys} from messages where accepted > 1"  # noqa: S608
    again = _one(
        answers, "select coalesce(sum(accepted - 1), 0) as n from messages where accepted > 1"
    )
    if not again:
        return 0, judge.judge_accepted_again([])
    settling = ", ".join(f"'{kind}'" for kind in judge.SETTLING)
    rows = answers.query(
        f"select h.recipient, h.sender, h.message_id, h.kind from history h join ({twice}) t"  # noqa: S608
        " on h.recipient = t.recipient and h.sender = t.sender and h.message_id = t.message_id"
        f" where h.kind in {_ACCEPTED} or (h.kind in ({settling}) and coalesce(h.known, true))"
        ' order by h."partition", h."offset", h."index"'
    ).to_pylist()
    named = [
        (f"{row['message_id']} from {row['sender']} to {row['recipient']}", row["kind"])
        for row in rows
    ]
    return again, judge.judge_accepted_again(named)


def _in_flight(
    answers: Answers, in_flight: int, times_ms: Mapping[int, int], shards: int
) -> Finding:
    keys = "m.recipient = i.recipient and m.sender = i.sender and m.message_id = i.message_id"
    gone = answers.query(
        "select m.message_id from (select recipient, sender, message_id from messages"  # noqa: S608
        " where outcome = 'in_flight') m left anti join (select recipient, sender, message_id"
        f" from inbox where envelope is not null and kind in {_ACCEPTED}) i on {keys}"
    ).to_pylist()
    latest_ms = max(times_ms.values(), default=0) - STUCK_MS
    late = answers.query(
        "select recipient, message_id, expires_at_ms from messages"  # noqa: S608
        f" where outcome = 'in_flight' and expires_at_ms < {latest_ms}"
    ).to_pylist()
    overdue = [
        row["message_id"]
        for row in late
        if row["expires_at_ms"] + STUCK_MS
        < times_ms.get(shard_of(bytes.fromhex(row["recipient"]), shards), 0)
    ]
    return judge.judge_in_flight(in_flight, [row["message_id"] for row in gone], overdue)


def _positions(answers: Answers) -> Finding:
    given = _one(answers, 'select count(*) as n from inbox where "position" is not null')
    repeated = answers.query(
        'select recipient, "position", count(*) as times from inbox where "position" is not null'
        ' group by recipient, "position" having count(*) > 1 order by recipient, "position"'
    ).to_pylist()
    return judge.judge_positions(
        given, [(row["recipient"], row["position"], row["times"]) for row in repeated]
    )


def _order(answers: Answers) -> Finding:
    checked = _one(answers, f"select count(*) as n from ({_PLACED}) placed")  # noqa: S608
    same = " and ".join(f"a.{name} = s.{name}" for name in _LANE.split(", "))
    placed = answers.query(
        f"select a.* from ({_PLACED}) a join ({_SUSPECT}) s on {same}"  # noqa: S608
        " order by a.recipient, a.sender, a.session_id, a.priority"
    ).to_pylist()
    if not placed:
        return judge.judge_order(checked, {})
    skipped: dict[tuple[object, ...], list[Skipped]] = {}
    for row in answers.query(
        f'select {_LANE}, counter, counter_to, "offset" from history'  # noqa: S608
        " where kind in ('gap', 'elsewhere') and reason is null"
    ).to_pylist():
        skipped.setdefault(_lane_of(row), []).append(
            Skipped(
                low=row["counter"], high=row["counter_to"] or row["counter"], offset=row["offset"]
            )
        )
    lanes = {
        f"{lane[1][:16]}… → {lane[0][:16]}… session {lane[2][:8]}… priority {lane[3]}": (
            [_placed(row) for row in rows],
            skipped.get(lane, []),
        )
        for lane, rows in groupby(placed, key=_lane_of)
    }
    return judge.judge_order(checked, lanes)


def _lane_of(row: dict[str, object]) -> tuple[str, str, str, int]:
    recipient, sender, session_id, priority = (row[name] for name in _LANE.split(", "))
    return recipient, sender, session_id, priority  # type: ignore[return-value]


def _placed(row: dict[str, object]) -> Placed:
    values = {name: row[name] for name in Placed.__slots__}
    return Placed(**{**values, "gap_before": bool(values["gap_before"])})  # type: ignore[arg-type]


def _repeated(answers: Answers, name: str) -> list[tuple[int, int, int, int]]:
    found = answers.query(
        f'select "partition", "offset", "index", count(*) as times from "{name}"'  # noqa: S608
        ' group by "partition", "offset", "index" having count(*) > 1'
        ' order by "partition", "offset", "index"'
    ).to_pylist()
    return [(row["partition"], row["offset"], row["index"], row["times"]) for row in found]


def _count(answers: Answers, name: str) -> int:
    # Not count(*): that would be answered from the table's own notes without a look at its files.
    return _one(answers, f'select coalesce(sum(1), 0) as n from "{name}"')  # noqa: S608


def _one(answers: Answers, sql: str) -> int:
    return int(answers.query(sql)["n"][0].as_py())
