"""`farpost sql`: any question about the delivery history, in SQL, without ciphertext."""

from __future__ import annotations

import csv
import io
import json
import signal
from collections.abc import Sequence
from pathlib import Path

import click

from farpost.cli.options import conf_option, data_option, json_option

ROWS_MAX = 1_000_000


@click.command()
@click.argument("query")
@click.option(
    "--limit",
    type=click.IntRange(1, ROWS_MAX),
    default=1_000,
    show_default=True,
    help="At most so many rows.",
)
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="For spreadsheets.")
@data_option
@conf_option
def sql(
    query: str, limit: int, as_json: bool, as_csv: bool, data: Path | None, conf: Path | None
) -> None:
    """Ask a QUERY (one SELECT) over inbox, history, dead_letters, quarantine, snapshots, messages.

    `messages` has one row per message with the status it has now. All times are Unix milliseconds.
    """
    from farpost.answers import open_answers
    from farpost.places import data_dir, load_settings
    from schemas.errors import BadQuery

    if as_json and as_csv:
        raise click.UsageError("choose one of --json and --csv")
    answers = open_answers(data_dir(data, load_settings(conf)))
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)  # the engine would not notice Ctrl-C
    try:
        found, more = answers.ask(query, limit)
    except BadQuery as error:  # it lists the tables, a line each
        click.echo(f"error: {error}", err=True)
        raise SystemExit(1) from None
    finally:
        signal.signal(signal.SIGINT, before)
    names = found.column_names
    rows = [[_plain(value) for value in row.values()] for row in found.to_pylist()]
    if as_json:
        click.echo(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=2))
    elif as_csv:
        click.echo(_csv(names, rows), nl=False)
    else:
        _show(names, rows)
    if more:
        click.echo(f"only the first {limit:,} rows are shown: raise --limit for more", err=True)


def _plain(value: object) -> object:
    """A value that JSON has a form for."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    return str(value)


def _csv(names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue()


def _show(names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [["" if value is None else str(value) for value in row] for row in rows]
    console = Console(highlight=False)
    if console.is_terminal:
        table = Table(header_style="bold")
        for name in names:
            table.add_column(Text(name), overflow="fold")
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)
    else:
        widths = [max(len(row[at]) for row in (names, *cells)) for at in range(len(names))]
        for line in (names, *cells):
            padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            click.echo("  ".join(padded).rstrip())
    click.echo(f"{len(rows):,} row{'' if len(rows) == 1 else 's'}", err=True)
