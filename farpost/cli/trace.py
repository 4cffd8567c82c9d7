"""`farpost trace`: everything that happened to one message, in plain words."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from farpost.cli.options import conf_option, data_option, json_option

if TYPE_CHECKING:
    from farpost.lookup import MessageKey
    from farpost.story import Step, Story


@click.command()
@click.argument("message_id", metavar="ID")
@click.option("--sender", default="", help="Only from this address, or what it begins with.")
@click.option("--recipient", default="", help="Only to this address, or what it begins with.")
@json_option
@data_option
@conf_option
def trace(
    message_id: str,
    sender: str,
    recipient: str,
    as_json: bool,
    data: Path | None,
    conf: Path | None,
) -> None:
    """Tell what happened to the message ID (hex, or the first digits of it)."""
    from farpost.answers import open_answers
    from farpost.lookup import find_message, rows_of
    from farpost.places import data_dir, load_settings
    from farpost.story import tell
    from schemas.errors import BadQuery

    answers = open_answers(data_dir(data, load_settings(conf)))
    try:
        key = find_message(answers, message_id, sender=sender, recipient=recipient)
    except BadQuery as error:  # it may list candidates, a line each
        click.echo(f"error: {error}", err=True)
        raise SystemExit(1) from None
    story = tell(rows_of(answers, key))
    if as_json:
        click.echo(json.dumps({**asdict(key), **asdict(story)}, indent=2))
    else:
        show(key, story)


def show(key: MessageKey, story: Story) -> None:
    """Print a story, for a person at a terminal or for a file."""
    from rich.console import Console

    click.echo(f"message    {key.message_id}")
    click.echo(f"sender     {key.sender}")
    click.echo(f"recipient  {key.recipient}")
    click.echo()
    console = Console(highlight=False)
    if console.is_terminal:
        _show_table(console, story)
    else:
        for time, after, step in _timed(story):
            click.echo(f"{time}  {after:>12}  {step.log:>10}  {step.text}")
            if step.next:
                click.echo(f"{'next:':>{len(time) + 2 + 12 + 2 + 10}}  {step.next}")
    click.echo()
    click.echo(f"status     {story.status_text}")


def _show_table(console: object, story: Story) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    assert isinstance(console, Console)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("when", no_wrap=True)
    table.add_column("after", justify="right", no_wrap=True)
    table.add_column("log", justify="right", no_wrap=True)
    table.add_column("what", ratio=1)
    for time, after, step in _timed(story):
        text = Text(step.text)
        if step.next:
            text.append(f"\n→ {step.next}", style="yellow")
        table.add_row(Text(time), Text(after, style="dim"), Text(step.log, style="dim"), text)
    console.print(table)


def _timed(story: Story) -> list[tuple[str, str, Step]]:
    """Each step with its time and how long after the step before it came."""
    from farpost.phrases import duration, stamp

    found = []
    before_ms: int | None = None
    for step in story.steps:
        after = "" if before_ms is None else f"+{duration(step.at_ms - before_ms)}"
        found.append((stamp(step.at_ms).ljust(27), after, step))
        before_ms = step.at_ms
    return found
