"""`farpost check`: the conservation proof, as a table and an exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from farpost.cli.options import conf_option, data_option, json_option

if TYPE_CHECKING:
    from farpost.proof import Proof

NOT_CONSERVED = 1
NOT_CHECKED = 3


@click.command()
@click.option(
    "--refold",
    is_flag=True,
    help="Also fold the whole log again in this process and compare every row.",
)
@json_option
@data_option
@conf_option
def check(refold: bool, as_json: bool, data: Path | None, conf: Path | None) -> None:
    """Prove that nothing was lost, doubled or put out of order.

    The exit code is 0 if all is conserved, 1 if not, and 3 if the tables agree with each other but
    the log could not be read, or could not be folded again.
    """
    from farpost.places import data_dir, load_settings
    from farpost.proof import prove

    settings = load_settings(conf)
    proof = prove(data_dir(data, settings), settings, refold=refold)
    if as_json:
        click.echo(json.dumps({**proof.verdict.figures(), "notes": proof.notes}, indent=2))
    else:
        show(proof)
    if not proof.verdict.conserved:
        raise SystemExit(NOT_CONSERVED)
    if proof.notes:
        raise SystemExit(NOT_CHECKED)


def show(proof: Proof) -> None:
    """Print the checks, what is wrong, and the verdict."""
    width = max(len(one.name) for one in proof.verdict.findings)
    for one in proof.verdict.findings:
        mark = click.style("✓", fg="green") if one.ok else click.style("✗", fg="red")
        click.echo(f"{mark} {one.name.ljust(width)}  {one.figure}")
        for problem in one.problems:
            click.echo(f"  {' ' * width}  {problem}")
    for note in proof.notes:
        click.echo(f"{click.style('!', fg='yellow')} {note}")
    colour = "green" if proof.verdict.conserved else "red"
    click.echo(click.style(proof.verdict.sentence(), fg=colour, bold=True))
