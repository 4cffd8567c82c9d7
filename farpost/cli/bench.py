"""`farpost bench`: measurements, for people or as JSON."""

from __future__ import annotations

import click

from farpost.cli.options import json_option


@click.group()
def bench() -> None:
    """Measure the hub on this machine, beside a control in the same run."""


@bench.command()
@click.option("--rate", type=click.IntRange(1, 100_000), default=500, show_default=True)
@click.option("--seconds", type=click.IntRange(1, 3_600), default=180, show_default=True)
@click.option("--size", type=click.IntRange(208, 262_144), default=1_024, show_default=True)
@json_option
def pipeline(rate: int, seconds: int, size: int, as_json: bool) -> None:
    """From the log to a committed manifest: latency, loss and CPU at an open-loop load."""
    import msgspec

    from farpost.bench.pipeline import Load, bench_pipeline
    from farpost.places import load_settings

    def say(text: str) -> None:
        click.echo(f"  {text}", err=True)

    result = bench_pipeline(load_settings(), Load(rate=rate, seconds=seconds, size=size), say)
    if as_json:
        click.echo(msgspec.json.encode(result).decode())
        return
    click.echo(
        f"committed    p50 {result.committed_p50_ms:,} ms, p95 {result.committed_p95_ms:,} ms,"
        f" p99 {result.committed_p99_ms:,} ms\n"
        f"lost         {result.lost}, duplicated {result.duplicated}\n"
        f"CPU          {result.cpu_load} CPU-seconds a second under load,"
        f" {result.cpu_idle} idle with {result.pending:,} pending\n"
        f"messages     {result.per_cpu_s:,} a CPU-second, control {result.control_per_cpu_s:,},"
        f" ratio {result.ratio}\n"
        f"at           {rate}/s for {seconds} s, {size} bytes, trigger {result.trigger_ms} ms,"
        f" {result.shards} shards"
    )
