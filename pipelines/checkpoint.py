"""Spark's checkpoint: may it be trusted, and what to start from if not.

State is a cache. A checkpoint is used only if it lies between the start of the log and the
manifest, and the machine did not go down under it; otherwise a new one begins, every shard seeded
from its newest snapshot, and the log is folded again from the oldest of those.

    <data>/checkpoints/<name>/spark/    Spark's own files
    <data>/checkpoints/<name>/seeds/    <shard>.blob, what a shard without state begins with
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from schemas.errors import StateDamaged

NOTHING = -1


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Where the query begins: a checkpoint by name and, if it is new, the log's offsets."""

    name: str
    offsets: list[int] | None  # None: the checkpoint itself knows
    reason: str  # why this one, for the log


class Seed(msgspec.Struct, frozen=True, kw_only=True):
    shard: int
    last_offset: int
    blob: bytes


def distrust(
    spark: Path, topic: str, log_starts: Sequence[int], manifest_offsets: Sequence[int]
) -> str | None:
    """Why the checkpoint in this directory must not be used; None if it may."""
    if not (spark / "metadata").exists():
        return "there is no checkpoint"
    try:
        offsets = _committed_offsets(spark, topic)
    except (OSError, ValueError, LookupError, msgspec.DecodeError) as error:
        return f"the checkpoint cannot be read ({type(error).__name__}: {error})"
    for partition, (start, limit) in enumerate(zip(log_starts, manifest_offsets, strict=True)):
        offset = offsets.get(partition, 0)
        if offset < start:
            return f"the checkpoint is at {offset} in partition {partition}, the log begins later"
        if offset > limit:
            return f"the checkpoint is at {offset} in partition {partition}, beyond the manifest"
    return None


def _committed_offsets(spark: Path, topic: str) -> dict[int, int]:
    """The offsets up to which the checkpoint's state is complete; empty if it has none."""
    for name in ("metadata", *_numbered(spark / "commits"), *_numbered(spark / "offsets")):
        if not (spark / name).stat().st_size:
            raise ValueError(f"{name} is empty")
    commits = _numbered(spark / "commits")
    if not commits:
        return {}
    newest = max(commits, key=lambda name: int(name.split("/")[1]))
    lines = (spark / newest.replace("commits", "offsets")).read_text().splitlines()
    if lines[0] != "v1":
        raise ValueError(f"its version is {lines[0]!r}")
    offsets = msgspec.json.decode(lines[-1], type=dict[str, dict[str, int]])[topic]
    return {int(partition): offset for partition, offset in offsets.items()}


def _numbered(directory: Path) -> list[str]:
    names = directory.iterdir() if directory.exists() else []
    return [f"{directory.name}/{path.name}" for path in names if path.name.isdigit()]


def begin(
    checkpoints: Path,
    name: str,
    *,
    seeds: Mapping[int, Seed],
    log_starts: Sequence[int],
    shards: int,
    reason: str,
) -> Start:
    """Lay out a new checkpoint: seeds for the shards, and where the log must be read from."""
    partitions = len(log_starts)
    offsets = []
    for partition in range(partitions):
        needed = min(
            (seeds[shard].last_offset + 1 if shard in seeds else 0)
            for shard in range(partition, shards, partitions)
        )
        if needed < log_starts[partition]:
            raise StateDamaged(
                f"partition {partition} of the log begins at {log_starts[partition]}, but the"
                f" snapshots reach only to {needed}: the state cannot be made again from them;"
                " restore the data directory from a backup"
            )
        offsets.append(needed)
    directory = checkpoints / name / "seeds"
    directory.mkdir(parents=True)
    for seed in seeds.values():
        (directory / f"{seed.shard}.blob").write_bytes(seed.blob)
    return Start(name=name, offsets=offsets, reason=reason)


def prune(checkpoints: Path, keep: str) -> None:
    """Remove every checkpoint but the one in use."""
    for path in checkpoints.iterdir() if checkpoints.exists() else []:
        if path.name != keep:
            shutil.rmtree(path, ignore_errors=True)
