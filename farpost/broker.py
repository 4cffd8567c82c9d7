"""The local broker: one KRaft node on loopback, all of it in the data directory."""

from __future__ import annotations

import base64
import socket
import struct
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

from schemas.errors import StartFailed
from schemas.topics import MESSAGE_SIZE_MAX

HEAP_MB = 384
HOST = "127.0.0.1"
FORMAT_TIMEOUT_S = 60
ASK_TIMEOUT_S = 1.0

# A request that every Kafka since 0.10 answers: ApiVersions, version 0, correlation 1, no client.
_API_VERSIONS = struct.pack(">hhih", 18, 0, 1, -1)
_ANSWER_MAX = 65_536


def properties(*, directory: Path, port: int, controller_port: int) -> str:
    """The text of server.properties."""
    lines = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CLIENT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"CLIENT://{HOST}:{port}",
        "inter.broker.listener.name": "CLIENT",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(directory / "log"),
        # Topics are ours to create: a misspelt name must fail, not become a topic.
        "auto.create.topics.enable": "false",
        "message.max.bytes": str(MESSAGE_SIZE_MAX),
        "replica.fetch.max.bytes": str(2 * MESSAGE_SIZE_MAX),
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        # A killed broker may come back only when its old session has ended: 9 s if not set.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "1000",
        # A laptop, not a rack: the defaults take a third of this heap and wake twice a second.
        "log.cleaner.dedupe.buffer.size": str(8 * 1024 * 1024),
        "metadata.max.idle.interval.ms": "10000",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        "num.recovery.threads.per.data.dir": "2",
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def is_formatted(directory: Path) -> bool:
    """Whether the broker may start on this directory."""
    return (directory / "log" / "meta.properties").is_file()


def format_storage(java: str, jars: Sequence[Path], directory: Path) -> None:
    """Give the log directory its cluster id; done once in its life."""
    # A leading 0x00 becomes the letter A: an id that began with a dash would be read as an option.
    raw = b"\0" + uuid.uuid4().bytes[1:]
    cluster_id = base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")
    command = [
        *_java(java, jars),
        "kafka.tools.StorageTool",
        "format",
        "--ignore-formatted",
        *("--cluster-id", cluster_id),
        *("--config", str(directory / "server.properties")),
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=FORMAT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _unprepared(directory, f"no end within {FORMAT_TIMEOUT_S} s") from None
    if done.returncode != 0:
        said = done.stdout.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
        raise _unprepared(directory, said[0][:400])


def command(java: str, jars: Sequence[Path], directory: Path) -> list[str]:
    """The broker's command line."""
    return [*_java(java, jars), "kafka.Kafka", str(directory / "server.properties")]


def answers(port: int, host: str = HOST) -> bool:
    """Ask the broker itself: a port that only accepts connections is not yet ready."""
    try:
        with socket.create_connection((host, port), timeout=ASK_TIMEOUT_S) as connection:
            connection.sendall(struct.pack(">i", len(_API_VERSIONS)) + _API_VERSIONS)
            size, correlation, error = struct.unpack(">iih", _read(connection, 10))
    except (OSError, struct.error):
        return False
    return bool(6 < size <= _ANSWER_MAX and correlation == 1 and error == 0)


def _unprepared(directory: Path, reason: str) -> StartFailed:
    return StartFailed(f"the broker's directory {directory} could not be prepared: {reason}")


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            break
        data += more
    return data


def _java(java: str, jars: Sequence[Path]) -> list[str]:
    return [
        java,
        f"-Xmx{HEAP_MB}m",
        "-Xms64m",
        "-XX:+UseSerialGC",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:TieredStopAtLevel=1",  # the other compiler takes more than it gives at this size
        "-Djava.awt.headless=true",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
        "-Dorg.slf4j.simpleLogger.showThreadName=false",
        "-cp",
        ":".join(str(jar) for jar in jars),
    ]
