"""The `farpost` command line: each command is loaded only when it is called."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from schemas.errors import DeliveryError

# name -> module:object, in the order of the help; the short help is here to load nothing for it.
COMMANDS = {
    "up": ("farpost.cli.up:up", "Start the hub on this machine."),
    "down": ("farpost.cli.up:down", "Stop it, and wait until all is gone."),
    "status": ("farpost.cli.up:status", "Show what runs and whether it is ready."),
    "logs": ("farpost.cli.logs:logs", "Show what the parts say."),
    "doctor": ("farpost.cli.doctor:doctor", "Check this machine, and say what to mend."),
    "trace": ("farpost.cli.trace:trace", "Tell what happened to a message."),
    "check": ("farpost.cli.check:check", "Prove that nothing was lost or doubled."),
    "sql": ("farpost.cli.sql:sql", "Ask the tables."),
    "job": ("farpost.cli.job:job", "Run the streaming query alone, or pack it for a cluster."),
    "config": ("farpost.cli.config:config", "Change the policy while the hub runs."),
    "rebuild": ("farpost.cli.rebuild:rebuild", "Make state or tables again from the log."),
    "demo": ("farpost.cli.demo:demo", "Show the whole hub at work on this machine."),
    "bench": ("farpost.cli.bench:bench", "Measure it."),
    "setup": ("farpost.cli.doctor:setup", "Fetch the jars that the hub needs."),
}


class Root(click.Group):
    """Finds commands by name in the table above."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All of them, in the table's order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one; a hub command on a machine without the hub says what to install."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        try:
            command = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            raise _without(error, cmd_name) from None
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in the help, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Turn what a command raises on purpose into one line."""
        try:
            return super().invoke(ctx)
        except DeliveryError as error:
            raise _OneLine(" ".join(str(error).split())) from None
        except ModuleNotFoundError as error:
            raise _without(error, ctx.invoked_subcommand or "this command") from None


class _OneLine(click.ClickException):
    """An error that is shown as one line, never as a traceback."""

    def show(self, file: Any = None) -> None:
        """On the error stream, in the form that the supervisor looks for."""
        click.echo(f"error: {self.message}", file=file or sys.stderr)


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="farpost", message="farpost %(version)s")
def main() -> None:
    """Deliver sealed messages to devices that are mostly offline."""


def _without(error: ModuleNotFoundError, command: str) -> Exception:
    """A missing package of the hub is for the person to install; one of ours is a bug."""
    name = (error.name or "").partition(".")[0]
    if name in ("", "schemas", "pipelines", "edge_node", "api", "farpost"):
        return error
    return _OneLine(
        f"`farpost {command}` needs the hub ({name} is missing): pip install 'farpost[hub]'"
    )
