"""The broker's configuration, and asking a port whether a broker is behind it."""

import socket
import struct
import threading
from pathlib import Path

import pytest

from farpost import broker, ports
from schemas.errors import StartFailed


@pytest.fixture
def server():
    """Answers one connection with the bytes a test gives, whatever it is asked."""
    listener = socket.create_server((broker.HOST, 0))
    threads = []

    def serve(answer):
        def run():
            connection, _ = listener.accept()
            with connection:
                connection.recv(100)
                connection.sendall(answer)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return listener.getsockname()[1]

    yield serve
    for thread in threads:
        thread.join()
    listener.close()


def answer(correlation=1, error=0, body=b"\0" * 20):
    return struct.pack(">iih", 6 + len(body), correlation, error) + body


def parsed(text):
    return dict(line.split("=", 1) for line in text.splitlines())


def test_a_broker_that_answers_the_question_is_ready(server):
    assert broker.answers(server(answer()))


@pytest.mark.parametrize(
    "bad", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", answer(correlation=2), answer(error=35)]
)
def test_any_other_answer_is_not_a_broker(server, bad):
    assert not broker.answers(server(bad))


def test_a_closed_port_is_not_a_broker():
    assert not broker.answers(ports.choose("broker"))


def test_everything_listens_on_loopback_only():
    found = parsed(broker.properties(directory=Path("/d"), port=1, controller_port=2))
    for key in ("listeners", "advertised.listeners"):
        hosts = [one.split("//")[1].split(":")[0] for one in found[key].split(",")]
        assert set(hosts) == {"127.0.0.1"}


def test_the_broker_creates_no_topics_and_takes_the_largest_record():
    found = parsed(broker.properties(directory=Path("/d"), port=1, controller_port=2))
    assert found["auto.create.topics.enable"] == "false"
    assert int(found["message.max.bytes"]) >= 270_336
    assert found["log.dirs"] == "/d/log"


def test_a_directory_that_cannot_be_formatted_is_named_with_the_reason(tmp_path):
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'Exception: not a directory'; exit 1\n")
    java.chmod(0o755)
    with pytest.raises(StartFailed, match=r"could not be prepared: Exception: not a directory"):
        broker.format_storage(str(java), [], tmp_path)


def test_a_cluster_id_never_looks_like_an_option(tmp_path):
    java = tmp_path / "java"
    java.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/said\n')
    java.chmod(0o755)
    broker.format_storage(str(java), [], tmp_path)
    words = (tmp_path / "said").read_text().split()
    cluster_id = words[words.index("--cluster-id") + 1]
    assert len(cluster_id) == 22
    assert cluster_id.startswith("A")
