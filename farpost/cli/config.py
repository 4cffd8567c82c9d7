"""`farpost config`: the policy in force, and how to change it while the hub runs."""

from __future__ import annotations

from pathlib import Path

import click

from farpost.cli.options import conf_option, data_option


@click.group()
def config() -> None:
    """Change the policy of a hub while it runs."""


@config.command()
@data_option
@conf_option
def apply(data: Path | None, conf: Path | None) -> None:
    """Make the policy of these settings the one in force; every shard follows by a log record."""
    from farpost.places import data_dir, load_settings
    from pipelines.policies import put_policy, read_policy
    from schemas.errors import NotFound

    settings = load_settings(conf)
    directory = data_dir(data, settings)
    before = read_policy(directory) if directory.is_dir() else None
    if before is None:
        raise NotFound(f"there is no hub in {directory} yet: start one with `farpost up`")
    after = put_policy(directory, settings.policy)
    if after == before:
        click.echo(f"policy {after.number} is in force already")
        return
    for name in settings.policy.__struct_fields__:
        old, new = getattr(before.policy, name), getattr(after.policy, name)
        if old != new:
            click.echo(f"policy.{name}: {old} → {new}")
    click.echo(f"policy {after.number} is sent to every shard as soon as the driver runs")
