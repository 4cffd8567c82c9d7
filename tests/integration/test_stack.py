"""The local stack with the real broker: started, killed, refused, stopped; nothing left behind.

The driver is left out here; its own tests kill it. The tests of one class share a stack, in order.
"""

import os
import signal
import subprocess
import sys
import time

import pytest

from farpost.places import Layout
from farpost.ports import choose
from pipelines import kafka
from pipelines.topics import ensure_log, read_known_log
from schemas import records
from schemas.errors import LogChanged
from schemas.settings import Settings
from schemas.topics import Topics
from tests.integration.stack_process import ROOT, StackProcess

SETTINGS = Settings()
INBOUND = Topics().inbound


def farpost(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "farpost", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def read_all(bootstrap, topic):
    """Every record of a topic, by partition."""
    from kafka import TopicPartition

    client = kafka.consumer(SETTINGS, bootstrap, consumer_timeout_ms=5_000)
    try:
        ends = kafka.end_offsets(client, topic)
        places = [TopicPartition(topic, partition) for partition in ends]
        client.assign(places)
        client.seek_to_beginning(*places)
        found = {partition: [] for partition in ends}
        while any(len(found[partition]) < end for partition, end in ends.items()):
            record = next(client)
            found[record.partition].append(record)
        return found
    finally:
        client.close()


@pytest.fixture(scope="class")
def stack(tmp_path_factory):
    stack = StackProcess(tmp_path_factory.mktemp("stack") / "data")
    yield stack
    stack.clean()


class TestOneStack:
    def test_it_becomes_ready_and_says_so(self, stack):
        stack.until_ready()
        said = stack.said()
        assert said.index("broker: starting") < said.index("broker: ready after")
        shown = farpost("status", "--data", str(stack.data))
        assert shown.returncode == 0, shown.stdout
        assert "broker  ready" in shown.stdout

    def test_a_ready_log_has_one_policy_record_for_every_shard(self, stack):
        found = read_all(stack.bootstrap(), INBOUND)
        assert sorted(found) == [0, 1]
        shards = []
        for partition, sent in found.items():
            for one in sent:
                record = records.decode_record(one.value)
                assert record.kind == records.Kind.POLICY
                assert record.shard % 2 == partition
                number, _, body = records.decode_policy(record.body)
                assert (number, body) == (1, SETTINGS.policy.to_json())
                shards.append(record.shard)
        assert sorted(shards) == list(range(32))

    def test_the_log_gives_its_own_time_to_a_record(self, stack):
        producer = kafka.producer(SETTINGS, stack.bootstrap())
        before_ms = time.time_ns() // 1_000_000
        value = records.encode_record(records.Kind.TICK, 3, records.encode_tick(5))
        sent = producer.send(INBOUND, value=value, partition=1, timestamp_ms=1_000)
        offset = sent.get(timeout=30).offset
        producer.close()
        found = next(one for one in read_all(stack.bootstrap(), INBOUND)[1] if one.offset == offset)
        assert found.value == value
        assert before_ms - 1 <= found.timestamp <= time.time_ns() // 1_000_000 + 1

    def test_the_largest_record_fits(self, stack):
        producer = kafka.producer(SETTINGS, stack.bootstrap())
        sent = producer.send(INBOUND, value=os.urandom(records.VALUE_MAX), partition=0)
        assert sent.get(timeout=30).offset > 0
        producer.close()

    def test_a_misspelt_topic_is_not_created(self, stack):
        admin = kafka.admin(SETTINGS, stack.bootstrap())
        assert kafka.describe_topic(admin, "imbound") is None
        assert set(admin.list_topics()) >= {INBOUND, Topics().dispatch}
        assert "imbound" not in admin.list_topics()
        admin.close()

    def test_a_second_start_on_the_same_data_is_refused_with_the_pid(self, stack):
        second = farpost("up", "--data", str(stack.data))
        assert second.returncode == 1
        assert second.stderr.startswith("error: farpost already runs on ")
        assert f"pid {stack.process.pid}" in second.stderr
        assert len(second.stderr.splitlines()) == 1
        assert stack.state().state == "ready"

    def test_a_killed_broker_is_named_started_again_and_has_kept_its_records(self, stack):
        before = read_all(stack.bootstrap(), INBOUND)
        part = stack.state().part("broker")
        os.kill(part.pid, signal.SIGKILL)
        stack.until(lambda: "broker: died (killed by SIGKILL" in stack.said())
        stack.until(lambda: stack.state().state == "ready" and stack.state().parts[0].restarts == 1)
        again = stack.state().part("broker")
        assert again.pid != part.pid
        assert again.port == part.port
        after = read_all(stack.bootstrap(), INBOUND)
        assert {p: [one.value for one in found] for p, found in after.items()} == {
            p: [one.value for one in found] for p, found in before.items()
        }

    def test_a_log_that_was_made_half_is_finished_and_a_finished_one_left_alone(self, stack):
        known = read_known_log(stack.data)
        ends = {p: len(found) for p, found in read_all(stack.bootstrap(), INBOUND).items()}
        assert ensure_log(SETTINGS, stack.bootstrap(), stack.data) == known
        assert {p: len(f) for p, f in read_all(stack.bootstrap(), INBOUND).items()} == ends
        stack.layout.log.unlink()
        assert ensure_log(SETTINGS, stack.bootstrap(), stack.data) == known
        after = {p: len(found) for p, found in read_all(stack.bootstrap(), INBOUND).items()}
        policies = SETTINGS.log.shards // SETTINGS.log.partitions
        assert after == {p: count + policies for p, count in ends.items()}

    def test_other_shards_or_partitions_than_the_log_has_are_refused(self, stack):
        other = Settings.parse("[log]\nshards = 128\npartitions = 4\n", {})
        with pytest.raises(LogChanged, match=r"log\.shards = 32 .*settings say 128 and 4"):
            ensure_log(other, stack.bootstrap(), stack.data)

    def test_a_topic_that_was_recreated_is_refused(self, stack):
        admin = kafka.admin(SETTINGS, stack.bootstrap())
        admin.delete_topics([INBOUND])
        stack.until(lambda: kafka.describe_topic(admin, INBOUND) is None)
        with pytest.raises(LogChanged, match="is gone from"):
            ensure_log(SETTINGS, stack.bootstrap(), stack.data)
        options = {"num_partitions": 2, "replication_factor": 1}
        admin.create_topics({INBOUND: options}, wait_for_metadata=True)
        admin.close()
        with pytest.raises(LogChanged, match=r"topic .* is not the one .*--data"):
            ensure_log(SETTINGS, stack.bootstrap(), stack.data)

    def test_down_waits_until_no_process_and_no_socket_is_left(self, stack):
        assert stack.remains()
        assert stack.sockets()
        done = farpost("down", "--data", str(stack.data))
        assert done.returncode == 0, done.stderr
        assert f"stopped in {stack.data}" in done.stdout
        assert stack.process.wait(timeout=5) == 0
        assert stack.remains() == []
        assert stack.sockets() == set()
        assert farpost("status", "--data", str(stack.data)).returncode == 1
        assert "nothing runs" in farpost("down", "--data", str(stack.data)).stdout


@pytest.fixture
def start(tmp_path):
    started = []

    def start(**options):
        started.append(StackProcess(tmp_path / "data", **options))
        return started[-1]

    yield start
    for stack in started:
        stack.clean()


def test_a_killed_supervisor_leaves_nothing_and_the_next_one_goes_on_with_the_same_ports(start):
    first = start().until_ready()
    ports, known = first.state().ports, read_known_log(first.data)
    first.end(signal.SIGKILL)
    first.until(lambda: not first.remains() and not first.sockets(), seconds=10)
    second = start().until_ready()
    assert second.state().ports == ports
    assert read_known_log(second.data) == known
    assert second.end(signal.SIGINT) == 0
    assert second.remains() == []
    assert second.sockets() == set()


def test_a_remembered_port_that_became_busy_is_replaced(start):
    import socket

    first = start().until_ready()
    port = first.state().ports["broker"]
    assert first.end() == 0
    with socket.create_server(("127.0.0.1", port)):
        second = start().until_ready()
        assert second.state().ports["broker"] != port
        assert second.end() == 0


def test_a_start_that_fails_half_way_leaves_nothing(start):
    assert start().until_ready().end() == 0
    failing = start(environ={"FARPOST_LOG_SHARDS": "64"})
    assert failing.process.wait(timeout=60) == 1
    assert "broker: ready" in failing.said()
    assert "broker: stopped" in failing.said()
    assert "error: the log of" in failing.said().splitlines()[-1]
    assert failing.remains() == []
    assert failing.sockets() == set()
    assert failing.state().state == "failed"


def test_a_broker_that_cannot_start_is_named_with_its_reason_and_nothing_is_left(start, tmp_path):
    broken = tmp_path / "data" / "broker" / "log"
    broken.parent.mkdir(parents=True)
    broken.write_text("a file where a directory should be")
    stack = start()
    assert stack.process.wait(timeout=60) == 1
    assert stack.said().splitlines()[-1].startswith("error: the broker's directory ")
    assert stack.remains() == []


def test_a_port_that_was_asked_for_and_is_busy_is_one_sentence(start):
    import socket

    port = choose("test")
    with socket.create_server(("127.0.0.1", port)):
        stack = start(broker_port=port)
        assert stack.process.wait(timeout=30) == 1
        assert f"error: port {port} for the broker is used by another program" in stack.said()
    assert stack.remains() == []
    assert Layout(stack.data).data.is_dir()
