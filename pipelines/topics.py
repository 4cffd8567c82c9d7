"""Creating the log, and knowing it again.

A log is ready when both topics exist and `inbound` holds one policy record for every shard; only
then is it written down which log it is. Dying in between is harmless: all of it is done again, and
a policy record that a shard sees twice changes nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pipelines import kafka
from pipelines.policies import PolicyFile, put_policy
from pipelines.shard import CORE_VERSION
from schemas import records
from schemas.errors import LogChanged, StartFailed
from schemas.settings import Settings
from schemas.topics import Topics, TopicSpec, specs

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

SEND_TIMEOUT_S = 30


class KnownLog(msgspec.Struct, frozen=True, kw_only=True):
    """Which log a data directory was made from, and how that log is cut."""

    cluster_id: str
    topic_id: str
    topic: str
    shards: int
    partitions: int


def ensure_log(settings: Settings, bootstrap: str, data: Path) -> KnownLog:
    """Create what is missing of the log; LogChanged if it is not the one of this directory."""
    known = read_known_log(data)
    if known is not None:
        check_log(known, settings, bootstrap, data)
        return known
    client = kafka.admin(settings, bootstrap)
    try:
        _create(client, settings, bootstrap)
        topic = Topics(settings.kafka.topic_prefix).inbound
        cluster_id, topic_id = kafka.log_identity(client, topic)
    finally:
        client.close()
    _send_policy(put_policy(data, settings.policy), settings, bootstrap, topic)
    found = KnownLog(
        cluster_id=cluster_id,
        topic_id=topic_id,
        topic=topic,
        shards=settings.log.shards,
        partitions=settings.log.partitions,
    )
    _write(data / "log.json", msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    return found


def check_log(known: KnownLog, settings: Settings, bootstrap: str, data: Path) -> None:
    """LogChanged if the log that answers is not the one these data were made from."""
    _check_cut(known, settings, data)
    client = kafka.admin(settings, bootstrap)
    try:
        _check_identity(known, client, bootstrap, data)
    finally:
        client.close()


def read_known_log(data: Path) -> KnownLog | None:
    """The log of this directory, or None while it is not ready."""
    path = data / "log.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=KnownLog)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise LogChanged(
            f"{path} cannot be read ({error}): delete it if {data} was only ever used "
            "with the log that is configured now, and it will be written again"
        ) from None


def _check_cut(known: KnownLog, settings: Settings, data: Path) -> None:
    asked = (settings.log.shards, settings.log.partitions)
    if asked != (known.shards, known.partitions):
        raise LogChanged(
            f"the log of {data} was created with log.shards = {known.shards} and "
            f"log.partitions = {known.partitions}, the settings say {asked[0]} and {asked[1]}: "
            "both are fixed for the life of a log; set them back, or start with a new --data"
        )


def _check_identity(known: KnownLog, client: KafkaAdminClient, bootstrap: str, data: Path) -> None:
    topic = known.topic
    described = kafka.describe_topic(client, topic)
    if described is None:
        raise LogChanged(
            f"topic {topic}, from which {data} was made, is gone from {bootstrap}: bring "
            "it back from a backup, or start with a new --data"
        )
    found = kafka.log_identity(client, topic)
    if found != (known.cluster_id, known.topic_id):
        what = "cluster" if found[0] != known.cluster_id else "topic"
        raise LogChanged(
            f"the {what} at {bootstrap} is not the one that {data} was made from (topic "
            f"{topic} was recreated, or kafka.bootstrap points elsewhere): point it back, or start "
            "with a new --data"
        )


def _create(client: KafkaAdminClient, settings: Settings, bootstrap: str) -> None:
    from kafka.errors import TopicAlreadyExistsError

    wanted = specs(
        prefix=settings.kafka.topic_prefix,
        partitions=settings.log.partitions,
        replication=settings.kafka.replication,
    )
    for spec in wanted:
        described = kafka.describe_topic(client, spec.name)
        if described is not None:
            _check_partitions(spec, len(described["partitions"]))
            continue
        if not settings.kafka.create_topics:
            raise StartFailed(
                f"topic {spec.name} does not exist at {bootstrap} and kafka.create_topics is "
                f"false: create it with {spec.partitions} partitions and these settings: "
                + ", ".join(f"{key}={value}" for key, value in sorted(spec.configs.items()))
            )
        with kafka.translated():
            try:
                client.create_topics({spec.name: _creation(spec)}, wait_for_metadata=True)
            except TopicAlreadyExistsError:
                continue  # someone was faster; the identity is read afterwards


def _creation(spec: TopicSpec) -> dict[str, object]:
    return {
        "num_partitions": spec.partitions,
        "replication_factor": spec.replication,
        "configs": dict(spec.configs),
    }


def _check_partitions(spec: TopicSpec, partitions: int) -> None:
    if partitions != spec.partitions:
        raise LogChanged(
            f"topic {spec.name} has {partitions} partitions, the settings ask for "
            f"{spec.partitions}: set log.partitions to {partitions}, or use another "
            "kafka.topic_prefix"
        )


def _send_policy(first: PolicyFile, settings: Settings, bootstrap: str, topic: str) -> None:
    """One policy record for every shard, durable before this returns."""
    body = records.encode_policy(first.number, CORE_VERSION, first.policy.to_json())
    shards, partitions = settings.log.shards, settings.log.partitions
    client = kafka.producer(settings, bootstrap)
    try:
        with kafka.translated():
            sent = [
                client.send(
                    topic,
                    value=records.encode_record(records.Kind.POLICY, shard, body),
                    partition=records.partition_of(shard, partitions),
                )
                for shard in range(shards)
            ]
            for future in sent:
                future.get(timeout=SEND_TIMEOUT_S)
    finally:
        client.close()


def _write(path: Path, data: bytes) -> None:
    """Durable, and never half a file."""
    part = path.with_suffix(".tmp")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
