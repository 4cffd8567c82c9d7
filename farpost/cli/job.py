"""`farpost job`: the streaming query alone, and the archive that takes it to a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from farpost.cli.options import conf_option, data_option


@click.group()
def job() -> None:
    """Run the streaming query alone, or pack it for spark-submit."""


@job.command()
@data_option
@conf_option
@click.option("--status-port", type=click.IntRange(0, 65_535), default=0, help="0: any free one.")
@click.option("--take-over", is_flag=True, help="Fence out a driver that is stuck.")
def run(data: Path | None, conf: Path | None, status_port: int, take_over: bool) -> None:
    """Run the query until Ctrl-C; the log must be there, as `farpost up` makes it."""
    from farpost import jars
    from farpost.places import Layout, data_dir, load_settings
    from farpost.stack import bootstrap
    from pipelines.job import Options, log_to_stderr
    from pipelines.job import run as run_job

    settings = load_settings(conf)
    directory = data_dir(data, settings)
    log_to_stderr()
    run_job(
        settings,
        Options(
            data=directory,
            bootstrap=bootstrap(settings, Layout(directory)),
            jars=tuple(jars.jars("spark")),
            status_port=status_port,
            take_over=take_over,
        ),
    )


@job.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("dist"),
    show_default=True,
    help="Where to write the archive and its main.",
)
def package(out: Path) -> None:
    """Write the archive for `spark-submit --py-files`, and print the line that uses it."""
    from farpost import jars
    from farpost.package import pack_job

    archive, main = pack_job(out)
    names = ",".join(str(jar) for jar in jars.jars("spark"))
    click.echo(f"wrote {archive} and {main}; submit them with:\n")
    click.echo(
        f"  spark-submit --master MASTER --jars {names} \\\n"
        f"    --py-files {archive} {main} --conf conf/cluster.toml --data DIRECTORY"
    )
    click.echo(
        "\nEvery executor needs Python with the packages of conf/requirements.lock,"
        "\nand DIRECTORY must be on a store that all of them share."
    )
