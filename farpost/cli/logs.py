"""`farpost logs`: what the parts of the stack have written."""

from __future__ import annotations

import time
from pathlib import Path

import click

from farpost.cli.options import conf_option, data_option
from farpost.places import Layout, data_dir, load_settings
from schemas.errors import NotFound

FOLLOW_S = 0.3
TAIL_BYTES = 65_536


@click.command()
@click.argument("part", required=False)
@data_option
@conf_option
@click.option("-n", "--lines", type=click.IntRange(0), default=50, help="How many of the last.")
@click.option("-f", "--follow", is_flag=True, help="Go on showing what comes.")
def logs(part: str | None, data: Path | None, conf: Path | None, lines: int, follow: bool) -> None:
    """Show the log of a PART, or of all: stack, broker, driver."""
    layout = Layout(data_dir(data, load_settings(conf)))
    paths = _paths(layout, part)
    width = max(len(path.stem) for path in paths)
    places: dict[Path, int] = {}
    for path in paths:
        found, places[path] = _last(path, lines)
        _show(path, found, width if len(paths) > 1 else 0)
    while follow:
        time.sleep(FOLLOW_S)
        for path in paths:
            found, places[path] = _since(path, places[path])
            _show(path, found, width if len(paths) > 1 else 0)


def _paths(layout: Layout, part: str | None) -> list[Path]:
    paths = sorted(layout.logs.glob("*.log"))
    chosen = [path for path in paths if part is None or path.stem == part]
    if not chosen:
        names = ", ".join(path.stem for path in paths)
        wanted = f"{part} has no log" if part else "there are no logs"
        raise NotFound(f"{wanted} in {layout.logs}" + (f"; there are: {names}" if names else ""))
    return chosen


def _last(path: Path, count: int) -> tuple[list[str], int]:
    """The last lines, and where the file ended."""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        file.seek(max(0, end - max(TAIL_BYTES, count * 300)))
        text = file.read(end - file.tell()).decode("utf-8", "replace")
    return (text.splitlines()[-count:] if count else []), end


def _since(path: Path, place: int) -> tuple[list[str], int]:
    """The whole lines that came after a place, and the place after them."""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        file.seek(place if place <= end else 0)  # a log at its limit begins again
        data = file.read()
        start = file.tell() - len(data)
    whole = data[: data.rfind(b"\n") + 1]
    return whole.decode("utf-8", "replace").splitlines(), start + len(whole)


def _show(path: Path, lines: list[str], width: int) -> None:
    for line in lines:
        click.echo(f"{path.stem.ljust(width)} | {line}" if width else line)
