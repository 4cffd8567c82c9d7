"""Looks at the machine and the data directory, and says of each trouble what to do about it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil

from farpost import broker, jars, ports, tools
from farpost.parts import leftovers
from farpost.places import Layout
from farpost.state import read_state, running_pid
from schemas.errors import DeliveryError
from schemas.settings import Settings

DISK_BYTES_MIN = 2 * 1024**3
BROKER_MEMORY_MB = 512


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One check: what was found, and what to do if that is not good."""

    name: str
    good: bool
    found: str
    remedy: str = ""


def examine(settings: Settings, layout: Layout) -> list[Finding]:
    """Every check, in the order in which a person would mend things."""
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("python", lambda: _tool("python", tools.python)),
        ("java", lambda: _tool("java", tools.java)),
        ("maven", _maven),
        *((f"{name} jars", lambda name=name: _jars(name)) for name in jars.SETS),
        ("memory", lambda: _memory(settings)),
        ("data", lambda: _data(layout.data)),
        ("disk", lambda: _disk(layout.data)),
        ("ports", lambda: _ports(layout)),
        ("leftovers", lambda: _leftovers(layout)),
    ]
    return [_examined(name, check) for name, check in checks]


def _examined(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except (DeliveryError, OSError) as error:
        return Finding(name=name, good=False, found=str(error))


def _tool(name: str, find: Callable[[], tools.Tool]) -> Finding:
    tool = find()
    return Finding(name=name, good=True, found=f"{tool.version} ({tool.path})")


def _maven() -> Finding:
    """Maven is not needed once the jars are there."""
    try:
        return _tool("maven", tools.maven)
    except DeliveryError as error:
        have_all = all(jars.jar_dir(name).is_dir() for name in jars.SETS)
        if not have_all:
            return Finding(name="maven", good=False, found=str(error))
        return Finding(
            name="maven", good=True, found="not found, and not needed: all jars are here"
        )


def _jars(set_name: str) -> Finding:
    name = f"{set_name} jars"
    remedy = "run `make setup` in a checkout, or `farpost setup`"
    directory = jars.jar_dir(set_name)
    if not directory.is_dir():
        return Finding(name=name, good=False, found="not installed", remedy=remedy)
    wrong = jars.wrong_jars(set_name, directory)
    if wrong:
        found = f"{len(wrong)} of them are not as they should be, such as {wrong[0]}"
        return Finding(name=name, good=False, found=found, remedy=remedy)
    return Finding(name=name, good=True, found=f"complete, hashes as recorded ({directory})")


def _memory(settings: Settings) -> Finding:
    free_mb = psutil.virtual_memory().available >> 20
    # Python workers and what a JVM has outside its heap come to about as much again as a half.
    needed_mb = settings.job.driver_memory_mb * 3 // 2 + BROKER_MEMORY_MB
    return Finding(
        name="memory",
        good=free_mb >= needed_mb,
        found=f"{free_mb:,} MiB free, the hub may use {needed_mb:,}",
        remedy="" if free_mb >= needed_mb else "end other programs, or lower job.driver_memory_mb",
    )


def _data(data: Path) -> Finding:
    place = _existing(data)
    good = os.access(place, os.W_OK | os.X_OK)
    there = str(data) if place == data else f"{data} (not there yet)"
    remedy = "" if good else f"give yourself the right to write to {place}, or use --data"
    return Finding(name="data", good=good, found=there, remedy=remedy)


def _disk(data: Path) -> Finding:
    free = shutil.disk_usage(_existing(data)).free
    good = free >= DISK_BYTES_MIN
    remedy = "" if good else f"free some space; {DISK_BYTES_MIN >> 30} GiB are a good start"
    return Finding(name="disk", good=good, found=f"{free / 1024**3:,.1f} GiB free", remedy=remedy)


def _ports(layout: Layout) -> Finding:
    remembered = read_state(layout).ports
    if running_pid(layout) is not None:
        good = broker.answers(remembered.get("broker", 0)) if remembered.get("broker") else True
        found = "in use by the hub that runs here" if good else "the broker does not answer"
        remedy = "" if good else "see `farpost status` and `farpost logs broker`"
        return Finding(name="ports", good=good, found=found, remedy=remedy)
    busy = [f"{port} ({name})" for name, port in remembered.items() if not ports.is_free(port)]
    if busy:
        found = f"{', '.join(busy)} used by another program: the next start takes others"
        return Finding(name="ports", good=True, found=found)
    shown = ", ".join(str(port) for port in remembered.values())
    found = f"free: {shown}" if shown else "chosen at the first start"
    return Finding(name="ports", good=True, found=found)


def _leftovers(layout: Layout) -> Finding:
    if running_pid(layout) is not None:
        return Finding(name="leftovers", good=True, found="the hub runs")
    left = leftovers(layout.data)
    if not left:
        return Finding(name="leftovers", good=True, found="no process of an earlier run")
    shown = ", ".join(f"{part} (pid {pid})" for pid, part in left)
    return Finding(
        name="leftovers",
        good=False,
        found=shown,
        remedy=f"end them with `farpost down --data {layout.data}`",
    )


def _existing(path: Path) -> Path:
    """The path, or the nearest directory above it that exists."""
    return next(place for place in (path, *path.parents) if place.exists())
