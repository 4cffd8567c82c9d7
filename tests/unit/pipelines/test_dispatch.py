import pytest
from kafka.errors import KafkaTimeoutError

from pipelines.dispatch import KafkaDispatch, MemoryDispatch
from schemas.errors import BrokerUnavailable


class Future:
    def __init__(self, error):
        self.error = error

    def get(self, timeout):
        assert timeout > 0
        if self.error:
            raise self.error


class Producer:
    """A producer whose broker may be away."""

    def __init__(self):
        self.sent = []
        self.fails = {}  # which record fails, and how
        self.partitions = {0}

    def send(self, topic, value, partition):
        self.sent.append((topic, value, partition))
        return Future(self.fails.get(value))

    def partitions_for(self, topic):
        if isinstance(self.partitions, Exception):
            raise self.partitions
        return self.partitions


@pytest.fixture
def producer():
    return Producer()


@pytest.fixture
def dispatch(producer):
    return KafkaDispatch(producer, "dispatch")


def test_records_go_to_one_partition_in_order(producer, dispatch):
    dispatch.send([b"order", b"mark"])
    assert producer.sent == [("dispatch", b"order", 0), ("dispatch", b"mark", 0)]


def test_a_record_that_was_not_acknowledged_is_an_error(producer, dispatch):
    producer.fails = {b"mark": KafkaTimeoutError("no answer")}
    with pytest.raises(BrokerUnavailable, match=r"topic dispatch .* no answer.* sent again"):
        dispatch.send([b"order", b"mark"])


def test_warming_asks_for_the_topic(producer, dispatch):
    dispatch.warm()
    producer.partitions = None
    with pytest.raises(BrokerUnavailable, match="does not know the topic dispatch"):
        dispatch.warm()
    producer.partitions = KafkaTimeoutError("away")
    with pytest.raises(BrokerUnavailable, match="away"):
        dispatch.warm()


def test_the_twin_keeps_what_was_sent_unless_it_is_away():
    twin = MemoryDispatch()
    twin.send([b"a"])
    twin.away = True
    with pytest.raises(BrokerUnavailable):
        twin.send([b"b"])
    assert twin.records == [b"a"]
