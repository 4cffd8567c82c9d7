"""The hub's tables for reading, all at the versions of one manifest, and without a JVM.

Two ways in: `Answers.query` is for our own questions and sees every column; `Answers.ask` is for
a person's, and no ciphertext can be reached through it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from farpost.statement import read_only
from farpost.views import MESSAGES, tables_text, visible_columns
from pipelines.manifest import Manifest, ManifestStore, open_tables
from schemas.errors import BadQuery, NotFound, TableDamaged

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

_RAW = "raw_"


class Answers:
    """The tables of one data directory as the newest manifest has them."""

    def __init__(self, manifest: Manifest, tables: dict[str, DeltaTable]) -> None:
        self.manifest = manifest
        self.tables = tables
        self._own: QueryBuilder | None = None

    def query(self, sql: str) -> pa.Table:
        """The answer to a question of ours; the tables have all their columns."""
        with _readable():
            return self._execute(sql).read_all()

    def stream(self, sql: str) -> Iterator[pa.RecordBatch]:
        """The same, a batch at a time."""
        with _readable():
            yield from self._execute(sql)

    def ask(self, sql: str, rows_max: int) -> tuple[pa.Table, bool]:
        """The answer to a person's question, at most `rows_max` rows, and whether there are more.

        BadQuery names what is wrong and what there is to ask about.
        """
        statement = read_only(sql)
        try:
            reader = _reader(_session(self.tables, hide=True), statement)
            return _take(reader, rows_max)
        except Exception as error:  # the engine raises bare Exceptions of its own
            raise BadQuery(
                f"the query cannot be answered: {_reason(error)}\nthere are:\n{tables_text()}"
            ) from None

    def _execute(self, sql: str) -> pa.RecordBatchReader:
        if self._own is None:
            self._own = _session(self.tables, hide=False)
        return _reader(self._own, sql)


def open_answers(data: Path) -> Answers:
    """Open what is committed; NotFound if this directory holds no hub, or nothing yet."""
    if not data.is_dir():
        raise NotFound(f"there is no hub in {data}: start one with `farpost up`")
    manifest = ManifestStore(data / "manifests").newest()
    if manifest is None:
        raise NotFound(
            f"the hub in {data} has not committed anything yet: wait a moment if it is running,"
            " else start it with `farpost up`"
        )
    with _readable():
        return Answers(manifest, open_tables(data, manifest))


def _session(tables: dict[str, DeltaTable], *, hide: bool) -> QueryBuilder:
    from deltalake import QueryBuilder

    session = QueryBuilder()
    for name, table in tables.items():
        if not hide:
            session.register(name, table)
            continue
        # A view keeps what it was made from; without the raw name nobody else reaches it.
        columns = ", ".join(f'"{column}"' for column in visible_columns(name))
        session.register(_RAW + name, table)
        view = f'create view "{name}" as select {columns} from "{_RAW}{name}"'  # noqa: S608
        session.execute(view).read_all()
        session.execute(f'drop table "{_RAW}{name}"').read_all()
    session.execute(f"create view messages as {MESSAGES}").read_all()
    return session


def _reader(session: QueryBuilder, sql: str) -> pa.RecordBatchReader:
    import pyarrow as pa

    # Not pa.table(): that one imports pandas first, for a third of a second.
    return pa.RecordBatchReader.from_stream(session.execute(sql))


def _take(reader: pa.RecordBatchReader, rows_max: int) -> tuple[pa.Table, bool]:
    import pyarrow as pa

    batches: list[pa.RecordBatch] = []
    rows = 0
    for batch in reader:
        batches.append(batch)
        rows += batch.num_rows
        if rows > rows_max:
            break
    return pa.Table.from_batches(batches, reader.schema).slice(0, rows_max), rows > rows_max


@contextmanager
def _readable() -> Iterator[None]:
    """Our own questions are never wrong: if one cannot be answered, a file is."""
    try:
        yield
    except Exception as error:  # the engine raises bare Exceptions of its own
        raise TableDamaged(
            f"the tables cannot be read ({_reason(error)}): stop the hub and make them again from"
            " the log with `farpost rebuild --tables`"
        ) from error


def _reason(error: Exception) -> str:
    """The engine's own words, without the layers it wraps them in."""
    text = str(error).strip().split("\n\n")[0]
    for prefix in (
        "External error: ",
        "Arrow error: ",
        "Error during planning: ",
        "Schema error: ",
    ):
        text = text.removeprefix(prefix)
    return text.replace("datafusion.public.", "")
