"""The topic `dispatch`: orders to deliver, and marks that a manifest is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from schemas.errors import BrokerUnavailable

if TYPE_CHECKING:
    from kafka import KafkaProducer

SEND_TIMEOUT_S = 15.0


class Dispatch(Protocol):
    """Where orders and marks go; one record may arrive twice, none may be lost."""

    def send(self, records: list[bytes]) -> None:
        """Append in order; durable when it returns, BrokerUnavailable if any may be missing."""


class KafkaDispatch:
    """The real topic; `producer` must wait for all copies (acks=all)."""

    def __init__(
        self, producer: KafkaProducer, topic: str, *, timeout_s: float = SEND_TIMEOUT_S
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._timeout_s = timeout_s

    def warm(self) -> None:
        """Ask for the topic's metadata now, so that the first commit does not wait for it."""
        from kafka.errors import KafkaError

        try:
            found = self._producer.partitions_for(self._topic)
        except KafkaError as error:
            raise self._away(error) from error
        if not found:
            raise BrokerUnavailable(f"the broker does not know the topic {self._topic}")

    def send(self, records: list[bytes]) -> None:
        from kafka.errors import KafkaError

        try:
            # One partition keeps the order: a mark comes after the orders that it commits.
            futures = [self._producer.send(self._topic, record, partition=0) for record in records]
            for future in futures:
                future.get(timeout=self._timeout_s)
        except KafkaError as error:
            raise self._away(error) from error

    def _away(self, error: Exception) -> BrokerUnavailable:
        return BrokerUnavailable(
            f"topic {self._topic} cannot be reached ({type(error).__name__}: {error}); what is"
            " committed is safe and its orders are sent again once the broker answers"
        )


class MemoryDispatch:
    """The twin for tests: keeps what was sent."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.away = False

    def send(self, records: list[bytes]) -> None:
        if self.away:
            raise BrokerUnavailable("the broker is away")
        self.records += records
