"""The stack's view of its parts and of itself, without starting any."""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from farpost import ports, stack
from farpost.parts import Readiness
from farpost.places import Layout
from farpost.state import PartState, StackState, write_state
from schemas.errors import BrokerUnavailable, PortBusy, StartFailed
from schemas.settings import Settings


@pytest.fixture
def layout(tmp_path):
    layout = Layout(tmp_path)
    layout.logs.mkdir()
    return layout


@pytest.fixture
def driver():
    """A driver that answers /status with what a test gives it; returns its port."""
    servers = []

    def serve(body):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        servers.append(HTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return servers[-1].server_port

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_the_driver_itself_says_that_it_is_ready(driver):
    said = {"ready": True, "state": "running", "manifest": 7, "reason": None}
    expected = Readiness(ready=True, detail="running", manifest=7)
    assert stack.ask_driver(driver(json.dumps(said).encode())) == expected


def test_the_reason_of_a_driver_that_is_not_ready_is_passed_on(driver):
    said = {"ready": False, "state": "waiting", "manifest": None, "reason": "no log"}
    assert stack.ask_driver(driver(json.dumps(said).encode())).detail == "no log"


@pytest.mark.parametrize("body", [b"", b"[]", b"nonsense", b'{"ready": "yes"}'])
def test_any_other_answer_is_not_ready(driver, body):
    assert not stack.ask_driver(driver(body)).ready


def test_no_answer_is_not_ready():
    assert not stack.ask_driver(ports.choose("driver")).ready


def test_the_configured_log_wins_over_the_local_one(layout):
    write_state(layout, StackState(ports={"broker": 20_001}))
    assert stack.bootstrap(Settings(), layout) == "127.0.0.1:20001"
    settings = Settings.parse('[kafka]\nbootstrap = "k:9092"\n', {})
    assert stack.bootstrap(settings, layout) == "k:9092"


def test_without_any_log_there_is_a_sentence(layout):
    with pytest.raises(BrokerUnavailable, match=r"no broker in .* yet: start one with `farpost up"):
        stack.bootstrap(Settings(), layout)


def test_with_a_configured_log_no_broker_is_started(layout):
    settings = Settings.parse('[kafka]\nbootstrap = "k:9092"\n', {})
    chosen = {"broker": 1, "controller": 2, "driver": 3}
    wish = stack.Wish(ports={})
    assert [i.name for i in stack._items(settings, layout, chosen, wish)] == ["topics", "driver"]
    assert [i.name for i in stack._items(Settings(), layout, chosen, wish)] == [
        *("broker", "topics", "driver")
    ]


def test_the_driver_gets_the_data_its_port_and_the_settings(layout):
    wish = stack.Wish(ports={}, conf=Path("/c.toml"))
    chosen = {"broker": 1, "controller": 2, "driver": 3}
    words = stack._items(Settings(), layout, chosen, wish)[-1].command()
    assert words[1:5] == ["-m", "farpost", "job", "run"]
    pairs = dict(zip(words[5::2], words[6::2], strict=True))
    assert pairs["--data"] == str(layout.data)
    assert pairs["--status-port"] == "3"
    assert pairs["--conf"] == "/c.toml"


def test_ports_are_remembered_and_all_different():
    first = stack._ports(stack.Wish(ports={}), {})
    assert len(set(first.values())) == 3
    assert stack._ports(stack.Wish(ports={}), first) == first
    with pytest.raises(PortBusy):
        stack._ports(stack.Wish(ports={"controller": first["broker"]}), first)


def test_the_state_of_a_stack_that_was_killed_is_stopped(layout):
    parts = [PartState(name="broker", state="ready", pid=1)]
    write_state(layout, StackState(state="ready", pid=os.getpid(), parts=parts))
    state = stack.status(layout)
    assert (state.state, state.reason, state.pid) == ("stopped", "it was killed", None)
    assert (state.parts[0].state, state.parts[0].pid) == ("stopped", None)


def test_the_reason_of_a_start_that_failed_stays_visible(layout):
    write_state(layout, StackState(state="failed", reason="the port is busy"))
    assert stack.status(layout).reason == "the port is busy"


def test_the_newest_manifest_is_found_by_its_name(layout):
    assert stack.newest_manifest(layout) is None
    layout.manifests.mkdir()
    for name in ("000000000009.json", "000000000010.json", "000000000011.json.tmp", "x.json"):
        (layout.manifests / name).touch()
    assert stack.newest_manifest(layout) == 10
    assert stack.status(layout).manifest == 10


def test_down_where_nothing_runs_says_so(layout):
    assert stack.down(layout, patience_ms=1_000, report=print) is False


def test_a_detached_start_that_fails_has_its_reason(layout):
    bad = ["--data", str(layout.data), "--conf", str(layout.data / "none.toml")]
    with pytest.raises(StartFailed, match=r"ended before it was ready: see .*stack\.log"):
        stack.detach(bad, layout, os.environ)
    assert "none.toml" in (layout.logs / "stack.log").read_text()
