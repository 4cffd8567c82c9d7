"""`farpost up`, `down` and `status`: the hub's processes on this machine."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click

from farpost.cli.options import conf_option, data_option, json_option
from farpost.places import Layout, data_dir, load_settings, make_data_dir
from farpost.stack import Wish, bootstrap
from farpost.stack import detach as start_detached
from farpost.stack import down as stop_stack
from farpost.stack import status as look
from farpost.stack import up as run_stack
from farpost.state import PartState, StackState, running_pid
from schemas.errors import AlreadyRunning
from schemas.settings import Settings


@click.command()
@data_option
@conf_option
@click.option("--detach", is_flag=True, help="Return when it is ready; `farpost down` stops it.")
@click.option("--broker-port", type=click.IntRange(0, 65_535), default=0, help="0: any free one.")
@click.option("--status-port", type=click.IntRange(0, 65_535), default=0, help="0: any free one.")
def up(
    data: Path | None, conf: Path | None, detach: bool, broker_port: int, status_port: int
) -> None:
    """Start the hub on this machine and keep it running until Ctrl-C or `farpost down`.

    All it keeps is in one data directory: --data, else FARPOST_DATA, else the settings.
    """
    settings = load_settings(conf)
    directory = data_dir(data, settings)
    wish = Wish(
        conf=conf.absolute() if conf else None,
        ports={"broker": broker_port, "driver": status_port},
    )
    if detach:
        _detach(settings, directory, wish)
        return
    click.echo(f"farpost: starting in {directory}")
    run_stack(
        settings,
        directory,
        wish,
        report=_say,
        on_ready=lambda state: _say_ready(settings, Layout(directory), detached=False),
    )


@click.command()
@data_option
@conf_option
def down(data: Path | None, conf: Path | None) -> None:
    """Stop the hub of a data directory, and wait until all of it is gone."""
    settings = load_settings(conf)
    layout = Layout(data_dir(data, settings))
    stopped = stop_stack(layout, patience_ms=settings.stack.stop_timeout_ms, report=_say)
    click.echo(f"farpost: {'stopped' if stopped else 'nothing runs'} in {layout.data}")


@click.command()
@data_option
@conf_option
@json_option
def status(data: Path | None, conf: Path | None, as_json: bool) -> None:
    """Show the parts of the hub; the exit code is 0 only if all of them are ready."""
    layout = Layout(data_dir(data, load_settings(conf)))
    state = look(layout)
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(state).decode())
    else:
        _show(layout, state)
    sys.exit(0 if state.state == "ready" else 1)


def _detach(settings: Settings, directory: Path, wish: Wish) -> None:
    layout = make_data_dir(directory)
    pid = running_pid(layout)
    if pid is not None:
        raise AlreadyRunning(f"farpost already runs on {directory} (pid {pid})")
    arguments = ["--data", str(directory)]
    if wish.conf:
        arguments += ["--conf", str(wish.conf)]
    arguments += ["--broker-port", str(wish.ports["broker"])]
    arguments += ["--status-port", str(wish.ports["driver"])]
    click.echo(f"farpost: starting in {directory}")
    start_detached(arguments, layout, os.environ)
    _say_ready(settings, layout, detached=True)


def _say(text: str) -> None:
    try:
        click.echo(f"  {text}")
    except OSError:
        return  # the terminal is gone; the stack's own log has it


def _say_ready(settings: Settings, layout: Layout, *, detached: bool) -> None:
    _say(f"ready; the log is at {bootstrap(settings, layout)}")
    _say(f"stop it with {'' if detached else 'Ctrl-C, or '}`farpost down --data {layout.data}`")


def _show(layout: Layout, state: StackState) -> None:
    click.echo(f"{layout.data}: {state.state}{f' ({state.reason})' if state.reason else ''}")
    rows: list[tuple[str, ...]] = [("part", "state", "pid", "port", "since", "restarts", "")]
    rows += [_row(part) for part in state.parts]
    widths = [max(len(row[column]) for row in rows) for column in range(7)]
    for row in rows if state.parts else []:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  " + "  ".join(cells).rstrip())
    manifest = "none yet" if state.manifest is None else f"{state.manifest:,}"
    click.echo(f"  committed manifest: {manifest}")


def _row(part: PartState) -> tuple[str, ...]:
    since = time.strftime("%H:%M:%S", time.localtime(part.since_ms / 1000)) if part.since_ms else ""
    pid = str(part.pid) if part.pid else ""
    return (
        *(part.name, part.state, pid, str(part.port), since, str(part.restarts)),
        part.reason[:120],
    )
