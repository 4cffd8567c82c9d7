"""The options that many commands share, so that they are the same everywhere."""

from __future__ import annotations

from pathlib import Path

import click

data_option = click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="The data directory; else FARPOST_DATA, else `data` in the settings.",
)
conf_option = click.option(
    "--conf",
    type=click.Path(path_type=Path),
    help="A TOML file with settings; what it leaves out has its default.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="For programs.")
