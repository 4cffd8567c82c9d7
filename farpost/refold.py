"""The strongest check: fold the whole log again in this process and compare every table's rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from farpost.answers import Answers
from farpost.conservation import Finding, finding
from farpost.retained import LogRecord, Retained
from pipelines.fold import fold_log
from schemas.tables import TABLES

DIFFERENCES_MAX = 1_000
_BATCH_ROWS = 1_000

Row = list[object]
Place = tuple[int, int, int]


def can_refold(span: Retained) -> bool:
    """The fold begins with nothing, so the log must still begin at its first record."""
    return not any(span.starts)


def refold(
    answers: Answers, records: Iterable[LogRecord], *, shards: int, partitions: int
) -> Finding:
    """Compare row by row, the two columns aside that say which commit brought a row."""
    expected = fold_log(records, shards=shards, partitions=partitions)
    problems: list[str] = []
    rows = 0
    for name in TABLES:
        rows += len(expected[name])
        problems += differences(name, sorted(expected[name], key=_place), _stored(answers, name))
    figure = f"{rows:,} rows equal a new fold of the log"
    return finding("refold", figure, problems)


def differences(name: str, expected: list[Row], stored: Iterable[Row]) -> list[str]:
    """What differs between two lists of rows in order of place, the first ones named."""
    found: list[str] = []
    columns = [column.name for column in TABLES[name].packed]
    at = 0
    for row in stored:
        place = _place(row)
        while at < len(expected) and _place(expected[at]) < place:
            found.append(f"table {name} lacks row {_text(_place(expected[at]))}")
            at += 1
        if at < len(expected) and _place(expected[at]) == place:
            other = [
                column
                for column, was, should in zip(columns, row, expected[at], strict=True)
                if was != should
            ]
            if other:
                found.append(f"table {name} row {_text(place)} differs in {', '.join(other)}")
            at += 1
        else:
            found.append(f"table {name} has row {_text(place)}, which the fold does not give")
        if len(found) >= DIFFERENCES_MAX:
            return found
    rest = expected[at : at + DIFFERENCES_MAX]
    return found + [f"table {name} lacks row {_text(_place(row))}" for row in rest]


def _stored(answers: Answers, name: str) -> Iterator[Row]:
    """A table's rows in order of place; the big values are read a batch at a time."""
    columns = ", ".join(f'"{column.name}"' for column in TABLES[name].packed)
    for batch in answers.stream(
        f'select {columns} from "{name}" order by "partition", "offset", "index"'  # noqa: S608
    ):
        for at in range(0, batch.num_rows, _BATCH_ROWS):
            part = batch.slice(at, _BATCH_ROWS)
            yield from (
                list(row) for row in zip(*(c.to_pylist() for c in part.columns), strict=True)
            )


def _place(row: Row) -> Place:
    return row[0], row[1], row[2]  # type: ignore[return-value]


def _text(place: Place) -> str:
    return ":".join(str(number) for number in place)
