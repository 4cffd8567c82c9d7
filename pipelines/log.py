"""The log as the driver writes it: its own records, each to the partition of its shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.errors import KafkaError

from schemas.errors import BrokerUnavailable
from schemas.records import partition_of

if TYPE_CHECKING:
    from kafka import KafkaProducer

SEND_TIMEOUT_S = 15


class KafkaLog:
    """Appends (shard, value) records to `inbound`, durably."""

    def __init__(self, producer: KafkaProducer, topic: str, partitions: int) -> None:
        self._producer = producer
        self._topic = topic
        self._partitions = partitions

    def append(self, records: list[tuple[int, bytes]]) -> list[int]:
        """Append in order and return the offsets; BrokerUnavailable if any may be missing."""
        try:
            futures = [
                self._producer.send(
                    self._topic, value, partition=partition_of(shard, self._partitions)
                )
                for shard, value in records
            ]
            return [future.get(timeout=SEND_TIMEOUT_S).offset for future in futures]
        except KafkaError as error:
            raise BrokerUnavailable(
                f"the log did not take a record ({type(error).__name__}: {error});"
                " it is sent again once the broker answers"
            ) from error
