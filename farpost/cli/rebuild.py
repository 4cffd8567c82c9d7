"""`farpost rebuild`: make state, or all tables, again from what is durable."""

from __future__ import annotations

from pathlib import Path

import click

from farpost.cli.options import conf_option, data_option


@click.command()
@data_option
@conf_option
@click.option("--tables", is_flag=True, help="Make all tables again, from the first record on.")
def rebuild(data: Path | None, conf: Path | None, tables: bool) -> None:
    """Set the saved state aside; the next start makes it again from snapshots and log.

    With --tables the tables and manifests are set aside, too, and made again from the whole log.
    Nothing is deleted: what was set aside lies in the data directory until you delete it.
    """
    from farpost.places import Layout, data_dir, load_settings
    from farpost.rebuild import set_aside

    settings = load_settings(conf)
    layout = Layout(data_dir(data, settings))
    aside = set_aside(layout, settings, tables=tables)
    click.echo(f"set aside in {aside}; start the hub with `farpost up --data {layout.data}`")
