"""Clients of the log, made from the settings: the one place that knows how to reach it.

A log that cannot be reached raises BrokerUnavailable; no error of the client library leaves here.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from schemas.errors import BrokerUnavailable, NotFound
from schemas.settings import Settings
from schemas.topics import MESSAGE_SIZE_MAX

if TYPE_CHECKING:
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

CONNECT_TIMEOUT_S = 5.0
BOOTSTRAP_TIMEOUT_MS = 15_000
FETCH_BYTES_MAX = 8 * 1024 * 1024


def client_config(settings: Settings, bootstrap: str) -> dict[str, Any]:
    """What every Python client of the log needs."""
    kafka = settings.kafka
    config: dict[str, Any] = {
        "bootstrap_servers": bootstrap.split(","),
        "bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT_MS,
        "security_protocol": kafka.security_protocol,
        # The default is up to 30 s: too long for a broker that restarts in three.
        "reconnect_backoff_max_ms": 1_000,
        "client_id": "farpost",
    }
    if kafka.security_protocol.startswith("SASL_"):
        config["sasl_mechanism"] = kafka.sasl_mechanism
        config["sasl_plain_username"] = kafka.sasl_username
        config["sasl_plain_password"] = kafka.sasl_password
    if kafka.ssl_cafile:
        config["ssl_cafile"] = kafka.ssl_cafile
    return config


def spark_options(settings: Settings, bootstrap: str) -> dict[str, str]:
    """The same for Spark's Kafka source, whose client is the Java one."""
    kafka = settings.kafka
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.security.protocol": kafka.security_protocol,
    }
    if kafka.security_protocol.startswith("SASL_"):
        scram = kafka.sasl_mechanism.startswith("SCRAM")
        module = "scram.ScramLoginModule" if scram else "plain.PlainLoginModule"
        options["kafka.sasl.mechanism"] = kafka.sasl_mechanism
        options["kafka.sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module} required "
            f"username={_quoted(kafka.sasl_username)} password={_quoted(kafka.sasl_password)};"
        )
    if kafka.ssl_cafile:
        options["kafka.ssl.truststore.type"] = "PEM"
        options["kafka.ssl.truststore.location"] = kafka.ssl_cafile
    return options


def producer(settings: Settings, bootstrap: str, **options: Any) -> KafkaProducer:
    """A producer whose acknowledgement means durable; warm it with `partitions_for(topic)`."""
    from kafka import KafkaProducer

    config = {
        "acks": "all",
        "enable_idempotence": True,
        "max_request_size": 4 * MESSAGE_SIZE_MAX,
        "allow_auto_create_topics": False,
        **client_config(settings, bootstrap),
        **options,
    }
    with reaching(bootstrap):
        return KafkaProducer(**config)


def consumer(settings: Settings, bootstrap: str, **options: Any) -> KafkaConsumer:
    """A consumer without a group: the caller assigns partitions and seeks."""
    from kafka import KafkaConsumer

    config = {
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "max_partition_fetch_bytes": FETCH_BYTES_MAX,
        "allow_auto_create_topics": False,
        **client_config(settings, bootstrap),
        **options,
    }
    with reaching(bootstrap):
        return KafkaConsumer(**config)


def admin(settings: Settings, bootstrap: str) -> KafkaAdminClient:
    """A client that creates, describes and trims topics; close it."""
    from kafka import KafkaAdminClient

    with reaching(bootstrap):
        return KafkaAdminClient(**client_config(settings, bootstrap))


def end_offsets(client: KafkaConsumer, topic: str) -> dict[int, int]:
    """The next offset of every partition of a topic."""
    return _offsets(client, topic, "end_offsets")


def begin_offsets(client: KafkaConsumer, topic: str) -> dict[int, int]:
    """The first offset that every partition of a topic still has."""
    return _offsets(client, topic, "beginning_offsets")


def log_identity(client: KafkaAdminClient, topic: str) -> tuple[str, str]:
    """The ids of the cluster and of the topic; NotFound if there is no such topic."""
    with translated():
        cluster_id = str(client.describe_cluster()["cluster_id"])
        found = describe_topic(client, topic)
    if found is None:
        raise NotFound(f"topic {topic} does not exist")
    return cluster_id, str(found["topic_id"])


def describe_topic(client: KafkaAdminClient, topic: str) -> Mapping[str, Any] | None:
    """What the log says of a topic, or None if there is no such topic."""
    from kafka.errors import UnknownTopicOrPartitionError

    with translated():
        try:
            described = client.describe_topics([topic])
        except UnknownTopicOrPartitionError:
            return None
    known = [one for one in described if one["name"] == topic and one["error_code"] == 0]
    return known[0] if known else None


@contextmanager
def reaching(bootstrap: str) -> Iterator[None]:
    """First look whether anything listens: a client that cannot connect leaks its thread."""
    if not any(_listens(address) for address in bootstrap.split(",")):
        raise BrokerUnavailable(
            f"nothing answers at {bootstrap}: start the broker (`farpost up`), "
            "or correct kafka.bootstrap in the settings"
        )
    with translated():
        yield


@contextmanager
def translated() -> Iterator[None]:
    """Turn what the client library raises into BrokerUnavailable."""
    from kafka.errors import KafkaError

    try:
        yield
    except (KafkaError, OSError) as error:
        said = str(error) or type(error).__name__
        raise BrokerUnavailable(f"the log does not answer as it should: {said}") from error


def _offsets(client: KafkaConsumer, topic: str, name: str) -> dict[int, int]:
    from kafka import TopicPartition

    with translated():
        partitions = client.partitions_for_topic(topic) or set()
        asked = [TopicPartition(topic, partition) for partition in sorted(partitions)]
        found = getattr(client, name)(asked)
    if not asked:
        raise NotFound(f"topic {topic} does not exist")
    return {place.partition: int(offset) for place, offset in found.items()}


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S):
            return True
    except (OSError, ValueError, OverflowError):
        return False


def _quoted(word: str) -> str:
    """A word as JAAS reads it."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
