"""Signed frames into the log, each to the partition of its mailbox."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pipelines import kafka
from schemas.records import Kind, route
from schemas.settings import Settings

if TYPE_CHECKING:
    from pipelines.topics import KnownLog

SEND_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record lies in the log, and since when."""

    partition: int
    offset: int
    at_ms: int


class Feed:
    """A producer that knows how the log is cut; close it, or use it with `with`."""

    def __init__(
        self, settings: Settings, bootstrap: str, log: KnownLog, *, linger_ms: int = 0
    ) -> None:
        self._log = log
        self._producer = kafka.producer(settings, bootstrap, linger_ms=linger_ms)
        self._producer.partitions_for(log.topic)  # else the first send blocks

    def send(self, kind: Kind, body: bytes) -> Any:
        """Hand a frame over and return at once; the future's result has offset and timestamp."""
        partition, value = route(kind, body, self._log.shards, self._log.partitions)
        return self._producer.send(self._log.topic, value, partition=partition)

    def put(self, kind: Kind, body: bytes) -> Place:
        """Hand a frame over and wait until the log has it durably."""
        return self._settle(self.send(kind, body))

    def put_raw(self, partition: int, value: bytes) -> Place:
        """Put bytes into a partition as they are, whatever they are."""
        return self._settle(self._producer.send(self._log.topic, value, partition=partition))

    def _settle(self, future: Any) -> Place:
        with kafka.translated():
            done = future.get(timeout=SEND_TIMEOUT_S)
        return Place(done.partition, done.offset, done.timestamp)

    def close(self) -> None:
        self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
