"""Setting state or tables aside, so that the next start makes them again."""

from __future__ import annotations

import time
from pathlib import Path

from farpost.places import Layout
from farpost.stack import bootstrap
from farpost.state import running_pid
from pipelines import kafka
from pipelines.sole import sole_driver
from schemas.errors import AlreadyRunning, BrokerUnavailable, NotFound, TableDamaged
from schemas.settings import Settings
from schemas.topics import Topics

STATE = ("checkpoints",)
TABLES = ("checkpoints", "tables", "manifests", "run.json")


def set_aside(layout: Layout, settings: Settings, *, tables: bool) -> Path:
    """Move what shall be made again into a directory of its own, and return that."""
    if not layout.data.is_dir():
        raise NotFound(f"there is no data directory {layout.data}")
    pid = running_pid(layout)
    if pid is not None:
        raise AlreadyRunning(
            f"farpost runs on {layout.data} (pid {pid}): stop it first with `farpost down`"
        )
    if tables:
        _refuse_trimmed(layout, settings)
    with sole_driver(layout.data):
        aside = layout.data / time.strftime("aside-%Y%m%d-%H%M%S", time.gmtime())
        aside.mkdir()
        for name in TABLES if tables else STATE:
            if (layout.data / name).exists():
                (layout.data / name).rename(aside / name)
    return aside


def _refuse_trimmed(layout: Layout, settings: Settings) -> None:
    """Only a log that still has its first record can make the tables again."""
    from kafka import TopicPartition  # noqa: F401 - fails early where the hub is not installed

    try:
        client = kafka.consumer(settings, bootstrap(settings, layout))
    except BrokerUnavailable:
        return  # a local log is never trimmed while its broker is down; the driver checks again
    try:
        starts = kafka.begin_offsets(client, Topics(settings.kafka.topic_prefix).inbound)
    finally:
        client.close()
    if any(starts.values()):
        raise TableDamaged(
            "the log no longer has its first records, so the tables cannot be made again from it:"
            " restore the data directory from a backup"
        )
