"""`farpost doctor` and `farpost setup`: is this machine fit, and make it so."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from farpost.cli.options import conf_option, data_option, json_option


@click.command()
@data_option
@conf_option
@json_option
def doctor(data: Path | None, conf: Path | None, as_json: bool) -> None:
    """Check tools, jars, disk, memory, data and ports; the exit code is 1 if anything is wrong."""
    import msgspec

    from farpost.doctor import examine
    from farpost.places import Layout, data_dir, load_settings

    settings = load_settings(conf)
    findings = examine(settings, Layout(data_dir(data, settings)))
    if as_json:
        click.echo(msgspec.json.encode(findings).decode())
    else:
        for finding in findings:
            click.echo(f"{'✓' if finding.good else '✗'} {finding.name}: {finding.found}")
            if finding.remedy:
                click.echo(f"    {finding.remedy}")
    sys.exit(0 if all(finding.good for finding in findings) else 1)


@click.command()
def setup() -> None:
    """Fetch the jars that the hub needs, by Maven, into the per-user cache."""
    from farpost import jars

    jars.install(click.echo)
    click.echo(f"all jars are in {jars.jar_dir('spark').parent}")
