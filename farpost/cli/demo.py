"""`farpost demo`: the whole hub on this machine, shown to a person, with a verdict."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from farpost.local import LocalHub

POLICY_WAIT_S = 60.0
QUESTION = "select status, count(*) from messages group by 1"


@click.command()
@click.option("--keep", is_flag=True, help="Keep the data directory, to look around in it.")
def demo(keep: bool) -> None:
    """Show the whole hub at work: it ends by itself and leaves nothing running."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    data = Path(tempfile.mkdtemp(prefix="farpost-demo-"))
    try:
        good = _show(console, data)
    except KeyboardInterrupt:
        console.print("\nstopped; nothing is left running")
        sys.exit(130)
    finally:
        if not keep:
            import shutil

            shutil.rmtree(data, ignore_errors=True)
    _farewell(console, data if keep else None, good)
    sys.exit(0 if good else 1)


def _show(console: Console, data: Path) -> bool:
    """Run the hub and the story; whether all was as it should be."""
    from farpost.demo import Story, failed
    from farpost.local import local_hub
    from farpost.places import load_settings

    started = time.monotonic()
    settings = load_settings(None, environ={})
    console.print(f"A hub in [bold]{data}[/]: a Kafka broker, a Spark query, Delta tables.")
    with local_hub(settings, data, report=lambda text: console.print(f"  {text}")) as hub:
        console.print(f"  ready after {time.monotonic() - started:.0f} s\n")
        _lower_minimum(console, hub)
        with hub.feed() as feed:
            story = Story(data, feed, lambda text: console.print(text, markup=False))
            story.tell()
        console.print(f"\nThe trace of counter 5 (`farpost trace {story.told.hex()[:8]}`):\n")
        _trace(data, story.told)
        console.print("\nWhat the hub can prove (`farpost check --refold`):\n")
        conserved = _check(hub)
    wrong = failed(story.outcomes)
    console.print()
    for outcome in wrong:
        console.print(f"✗ {outcome.label}: {outcome.found}, should be {outcome.expected}")
    return conserved and not wrong


def _lower_minimum(console: Console, hub: LocalHub) -> None:
    """Messages must live an hour at least; for the demo, a policy record makes it seconds."""
    import msgspec

    from pipelines.policies import put_policy

    before = hub.settings.policy
    after = msgspec.structs.replace(before, expiry_remaining_min_s=5, expiry_tolerance_s=0)
    number = put_policy(hub.layout.data, after).number
    console.print(
        f"Policy {number}: the least time a message must live goes from"
        f" {before.expiry_remaining_min_s // 60} min to {after.expiry_remaining_min_s} s."
    )
    took_s = _await_policy(hub, number)
    console.print(f"  every shard follows it after {took_s:.1f} s\n")


def _await_policy(hub: LocalHub, number: int) -> float:
    from farpost.stack import driver_facts
    from schemas.errors import StartFailed

    started = time.monotonic()
    while time.monotonic() - started < POLICY_WAIT_S:
        if driver_facts(hub.state().ports["driver"]).get("policy_number") == number:
            return time.monotonic() - started
        time.sleep(0.1)
    raise StartFailed(f"policy {number} did not reach every shard in {POLICY_WAIT_S:.0f} s")


def _trace(data: Path, message_id: bytes) -> None:
    from farpost.answers import open_answers
    from farpost.cli.trace import show
    from farpost.lookup import find_message, rows_of
    from farpost.story import tell

    answers = open_answers(data)
    key = find_message(answers, message_id.hex(), sender="", recipient="")
    show(key, tell(rows_of(answers, key)))


def _check(hub: LocalHub) -> bool:
    from farpost.cli.check import show
    from farpost.proof import prove

    proof = prove(hub.layout.data, hub.settings, refold=True)
    show(proof)
    return proof.verdict.conserved and not proof.notes


def _farewell(console: Console, kept: Path | None, good: bool) -> None:
    if not good:
        console.print("[bold red]Something was not as it should be.[/] See the lines with ✗.")
        return
    console.print("[bold green]All was as it should be.[/] Nothing is left running.\n")
    data = f" --data {kept}" if kept else ""
    console.print("What to try next (with `.venv/bin` in your PATH):")
    for command, text in (
        (f"farpost up{data} --detach", "the same hub, to stay"),
        (f"farpost status{data}", "what runs, and what is committed"),
        (f"farpost sql{data} '{QUESTION}'", "ask it"),
        (f"farpost check{data} --refold", "the proof again"),
        (f"farpost down{data}", "stop it"),
    ):
        console.print(f"  {command:<72} {text}", markup=False)
