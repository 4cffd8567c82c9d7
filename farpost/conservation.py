"""The conservation proof: every envelope of the log has one outcome, and no message goes missing.

    accepted = delivered + taken + expired + dead + cancelled + superseded + in flight

Each function judges one part from plain columns and returns a finding; what is wrong is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from schemas.records import Kind

OUTCOMES = ("delivered", "taken", "expired", "dead", "cancelled", "superseded", "in_flight")
FIRST_OUTCOMES = ("stored", "held", "scheduled", "duplicate", "refused", "quarantined")
SETTLING = ("delivered", "read", "taken", "expired", "cancelled", "superseded", "dead")
PROBLEMS_SHOWN = 10
MESSAGE_ID_SIZE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check: its figure for a person, and what is wrong, named; `count` of what is wrong."""

    name: str
    figure: str
    problems: tuple[str, ...] = ()
    count: int = 0
    lost: int = 0

    @property
    def ok(self) -> bool:
        return self.count == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A manifest, as far as the chain of offsets goes: (partition, from, up to but without)."""

    number: int
    ranges: Sequence[tuple[int, int, int]]
    next_offsets: Sequence[int]
    previous_hash: str = ""  # what it says of the file before
    file_hash: str = ""  # of its own file


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """What an independent consumer read in one partition: `kinds` and `ids` in order of offset."""

    partition: int
    start: int
    end: int
    kinds: bytes  # one per record; 0 for an empty value
    ids: bytes  # 16 per record: the message_id of an envelope


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeColumns:
    """First outcomes in the tables: parallel columns, one row each."""

    partitions: Sequence[int]
    offsets: Sequence[int]
    kinds: Sequence[str]
    message_ids: Sequence[str | None]  # None in quarantine


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A message of a lane that got a position."""

    message_id: str
    counter: int
    position: int
    offset: int
    at_ms: int
    expires_at_ms: int | None
    gap_before: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Counters that history says may come late: a gap given up, or sent another way."""

    low: int
    high: int
    offset: int


def finding(name: str, figure: str, problems: Sequence[str], *, lost: int = 0) -> Finding:
    """A finding that counts every problem and names the first ones."""
    shown = list(problems[:PROBLEMS_SHOWN])
    if len(problems) > PROBLEMS_SHOWN:
        shown.append(f"… and {len(problems) - PROBLEMS_SHOWN:,} more")
    return Finding(name=name, figure=figure, problems=tuple(shown), count=len(problems), lost=lost)


def judge_chain(links: Sequence[Link]) -> Finding:
    """Each manifest must begin exactly where the one before it ended."""
    problems = []
    for link, before in zip(links[1:], links, strict=False):
        expected = list(before.next_offsets)
        if link.number != before.number + 1:
            problems.append(f"manifest {before.number + 1} is missing or cannot be read")
            continue
        if link.previous_hash != before.file_hash:
            problems.append(
                f"manifest {link.number} was not written after manifest {before.number} as it is"
            )
        for partition, low, high in link.ranges:
            if low != expected[partition]:
                problems.append(
                    f"manifest {link.number} takes partition {partition} up at offset {low:,},"
                    f" but manifest {before.number} ended at {expected[partition]:,}"
                )
            expected[partition] = high
        if expected != list(link.next_offsets):
            problems.append(
                f"manifest {link.number} says {list(link.next_offsets)} come next,"
                f" its ranges end at {expected}"
            )
    end = links[-1].next_offsets if links else []
    return finding("offsets", f"contiguous up to {_offsets(end)}", problems)


def judge_totals(
    totals: Mapping[str, int], found: Mapping[str, int], next_offsets: Sequence[int]
) -> Finding:
    """What the manifest counted must be what the tables hold, record by record."""
    problems = [
        f"the manifest counted {totals.get(name, 0):,} {name}, the tables hold"
        f" {found.get(name, 0):,}"
        for name in FIRST_OUTCOMES
        if totals.get(name, 0) != found.get(name, 0)
    ]
    if totals.get("records", 0) != sum(next_offsets):
        problems.append(
            f"the manifest counted {totals.get('records', 0):,} records, its offsets say"
            f" {sum(next_offsets):,}"
        )
    return finding("totals", f"{totals.get('records', 0):,} records counted", problems)


def judge_log(parts: Sequence[LogPart], outcomes: OutcomeColumns) -> Finding:
    """Every envelope in the retained log must have exactly one first outcome, and nothing else."""
    problems: list[str] = []
    lost = envelopes = records = 0
    by_partition = _by_partition(outcomes)
    for part in parts:
        records += part.end - part.start
        envelopes += part.kinds.count(Kind.ENVELOPE)
        if len(part.kinds) != part.end - part.start:
            problems.append(
                f"partition {part.partition} holds {len(part.kinds):,} records from offset"
                f" {part.start:,} up to {part.end:,}"
            )
            continue
        missing, wrong = _judge_part(part, by_partition.get(part.partition, []))
        lost += len(missing)
        problems += missing + wrong
    figure = f"{envelopes:,} envelopes in {records:,} records, one outcome each"
    return finding("log", figure, problems, lost=lost)


def _by_partition(outcomes: OutcomeColumns) -> dict[int, list[tuple[int, str, str | None]]]:
    grouped: dict[int, list[tuple[int, str, str | None]]] = {}
    for partition, *row in zip(
        outcomes.partitions,
        outcomes.offsets,
        outcomes.kinds,
        outcomes.message_ids,
        strict=True,
    ):
        grouped.setdefault(partition, []).append((row[0], row[1], row[2]))  # type: ignore[arg-type]
    return grouped


def _judge_part(
    part: LogPart, rows: Iterable[tuple[int, str, str | None]]
) -> tuple[list[str], list[str]]:
    seen = bytearray(part.end - part.start)
    wrong = []
    for offset, kind, message_id in rows:
        at = offset - part.start
        place = f"{part.partition}:{offset}"
        if at < 0:
            continue  # older than what the log still holds
        if at >= len(seen):
            wrong.append(f"the tables hold {kind} at {place}, beyond the manifest")
            continue
        expected = _id_at(part, at)
        if part.kinds[at] != Kind.ENVELOPE:
            wrong.append(f"the tables hold {kind} at {place}, where the log has no envelope")
        elif message_id not in (None, expected):
            wrong.append(f"{place} is message {expected}, the tables say {message_id}")
        elif seen[at]:
            wrong.append(f"message {expected} at {place} has a second outcome, {kind}")
        seen[at] = 1
    missing = [
        f"message {_id_at(part, at)} at {part.partition}:{part.start + at} has no outcome"
        for at, kind in enumerate(part.kinds)
        if kind == Kind.ENVELOPE and not seen[at]
    ]
    return missing, wrong


def _id_at(part: LogPart, at: int) -> str:
    return part.ids[at * MESSAGE_ID_SIZE : (at + 1) * MESSAGE_ID_SIZE].hex()


def judge_balance(accepted: int, again: int, outcomes: Mapping[str, int]) -> Finding:
    """What was accepted must be somewhere; `again` counts messages accepted more than once."""
    total = sum(outcomes.get(name, 0) for name in OUTCOMES)
    parts = " + ".join(
        f"{outcomes[name]:,} {name.replace('_', ' ')}" for name in OUTCOMES if outcomes.get(name)
    )
    problems = []
    if accepted - again != total:
        problems.append(f"{accepted - again:,} messages were accepted, {total:,} are accounted for")
    figure = f"{accepted - again:,} accepted = {parts or '0'}"
    return finding("balance", figure, problems, lost=max(0, accepted - again - total))


def judge_accepted_again(rows: Iterable[tuple[str, str]]) -> Finding:
    """`rows` are (message, kind) of messages accepted more than once, in the order of the log.

    A message that was settled and forgotten may be accepted again; a pending one never.
    """
    pending: set[str] = set()
    problems = []
    for message, kind in rows:
        if kind in SETTLING:
            pending.discard(message)
        elif message in pending:
            problems.append(f"message {message} was accepted again while it was pending")
        else:
            pending.add(message)
    return finding("accepted once", "no pending message was accepted again", problems)


def judge_in_flight(
    in_flight: int, without_envelope: Sequence[str], overdue: Sequence[str]
) -> Finding:
    """A message in flight must still be there to fetch, and must not have outlived its expiry."""
    problems = [
        f"message {name} is in flight, but its envelope is gone" for name in without_envelope
    ]
    problems += [f"message {name} is stuck: it should have expired" for name in overdue]
    return finding(
        "in flight", f"{in_flight:,}, each with its envelope", problems, lost=len(without_envelope)
    )


def judge_positions(positions: int, repeated: Sequence[tuple[str, int, int]]) -> Finding:
    """A position of a mailbox is given once; `repeated` is (recipient, position, times)."""
    problems = [
        f"position {position:,} of mailbox {recipient} was given {times} times"
        for recipient, position, times in repeated
    ]
    return finding("positions", f"{positions:,} given, {len(problems):,} twice", problems)


def judge_order(
    checked: int, lanes: Mapping[str, tuple[Sequence[Placed], Sequence[Skipped]]]
) -> Finding:
    """Along the positions of a lane the counters grow, except where history recorded a gap."""
    problems = [
        f"message {row.message_id} (number {row.counter:,} of {lane}) got position"
        f" {row.position:,}, after a later number and outside any recorded gap"
        for lane, (placed, skipped) in lanes.items()
        for row in inversions(placed, skipped)
    ]
    return finding(
        "order", f"{checked:,} numbered messages, {len(problems):,} inversions", problems
    )


def inversions(placed: Sequence[Placed], skipped: Sequence[Skipped]) -> list[Placed]:
    """The messages of one lane that came behind a later counter without a record of it."""
    highest = 0
    kept_until_ms: int | None = 0  # None: never
    late: set[int] = set()
    found = []
    for row in sorted(placed, key=lambda item: item.position):
        forgotten = kept_until_ms is not None and row.at_ms >= kept_until_ms
        if row.counter > highest or row.gap_before or forgotten:
            # A lane is forgotten once all it ever held has expired, and then begins anew.
            highest = row.counter
        elif row.counter in late or not _was_skipped(row, skipped):
            found.append(row)
        late.add(row.counter)
        if row.expires_at_ms is None or kept_until_ms is None:
            kept_until_ms = None
        else:
            kept_until_ms = max(kept_until_ms, row.expires_at_ms)
    return found


def _was_skipped(row: Placed, skipped: Sequence[Skipped]) -> bool:
    return any(s.low <= row.counter <= s.high and s.offset <= row.offset for s in skipped)


def judge_rows(expected: Mapping[str, int], found: Mapping[str, int]) -> Finding:
    """The tables must hold exactly the rows the manifests said were appended."""
    problems = [
        f"table {name} holds {found.get(name, 0):,} rows, the manifest says {rows:,}"
        for name, rows in expected.items()
        if found.get(name, 0) != rows
    ]
    return finding("rows", f"{sum(found.values()):,} in {len(found)} tables", problems)


def judge_unique(repeated: Mapping[str, Sequence[tuple[int, int, int, int]]]) -> Finding:
    """No row was appended twice; `repeated` is (partition, offset, index, times) per table."""
    problems = [
        f"table {name} holds row {partition}:{offset}:{index} {times} times"
        for name, rows in repeated.items()
        for partition, offset, index, times in rows
    ]
    return finding("appended once", "no row twice", problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All findings, and the figures a program asks for."""

    findings: tuple[Finding, ...]
    outcomes: Mapping[str, int]
    accepted: int
    envelopes: int
    log_checked: bool

    @property
    def conserved(self) -> bool:
        return all(one.ok for one in self.findings)

    def figures(self) -> dict[str, object]:
        """The names of `farpost check --json`."""
        counts = Counter({one.name: one.count for one in self.findings})
        return {
            "conserved": self.conserved,
            "log_checked": self.log_checked,
            "envelopes": self.envelopes,
            "lost": sum(one.lost for one in self.findings),
            "duplicate_positions": counts["positions"],
            "inversions": counts["order"],
            "accepted": self.accepted,
            **{name: self.outcomes.get(name, 0) for name in OUTCOMES},
            "problems": [problem for one in self.findings for problem in one.problems],
        }

    def sentence(self) -> str:
        """The one line a person reads first."""
        figures = self.figures()
        word = "conserved" if self.conserved else "NOT conserved"
        text = (
            f"{word}: {self.envelopes:,} envelopes, {figures['lost']:,} lost,"
            f" {figures['duplicate_positions']:,} duplicate positions,"
            f" {figures['inversions']:,} inversions"
        )
        return text if self.log_checked else f"{text}; the log was not checked"


def _offsets(next_offsets: Sequence[int]) -> str:
    return ", ".join(f"{p}:{offset:,}" for p, offset in enumerate(next_offsets)) or "nothing"
