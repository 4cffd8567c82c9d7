"""`farpost doctor`: each trouble has a remedy."""

import socket
import subprocess

import msgspec
import pytest
from click.testing import CliRunner

from farpost import doctor, jars, ports
from farpost.cli import main
from farpost.parts import MARK, kill_leftovers
from farpost.places import Layout
from farpost.state import StackState, write_state
from schemas.errors import MissingTool
from schemas.settings import Settings


@pytest.fixture
def layout(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Layout(tmp_path / "data")


def examine(layout):
    return {finding.name: finding for finding in doctor.examine(Settings(), layout)}


def test_every_check_has_a_finding_and_every_trouble_a_remedy(layout, monkeypatch):
    def missing():
        raise MissingTool("Java 17 or newer is needed and was not found: install it with `…`")

    monkeypatch.setattr(doctor.tools, "java", missing)
    found = examine(layout)
    assert list(found) == [
        *("python", "java", "maven", "spark jars", "broker jars"),
        *("memory", "data", "disk", "ports", "leftovers"),
    ]
    assert found["python"].good
    assert not found["java"].good
    assert "install it with" in found["java"].found
    assert not found["spark jars"].good
    assert "farpost setup" in found["spark jars"].remedy


def test_a_directory_that_is_not_there_yet_is_fine(layout):
    found = examine(layout)
    assert found["data"].good
    assert "not there yet" in found["data"].found
    assert found["ports"].found == "chosen at the first start"


def test_damaged_jars_are_named(layout):
    directory = jars.jar_dir("spark")
    directory.mkdir(parents=True)
    (directory / "delta-storage-4.4.0.jar").write_bytes(b"x")
    finding = examine(layout)["spark jars"]
    assert not finding.good
    assert "commons-pool2" in finding.found


def test_too_little_memory_or_disk_is_a_trouble(layout, monkeypatch):
    monkeypatch.setattr(doctor, "BROKER_MEMORY_MB", 1 << 40)
    monkeypatch.setattr(doctor, "DISK_BYTES_MIN", 1 << 80)
    found = examine(layout)
    assert "job.driver_memory_mb" in found["memory"].remedy
    assert "free some space" in found["disk"].remedy


def test_processes_of_a_dead_run_are_found_with_the_command_that_ends_them(layout):
    layout.data.mkdir()
    process = subprocess.Popen(["sleep", "60"], env={MARK: f"old driver {layout.data}"})
    finding = examine(layout)["leftovers"]
    assert finding.found == f"driver (pid {process.pid})"
    assert f"farpost down --data {layout.data}" in finding.remedy
    kill_leftovers(layout.data)
    assert process.wait() == -9
    assert examine(layout)["leftovers"].good


def test_remembered_ports_are_named_and_a_busy_one_is_no_trouble(layout):
    layout.data.mkdir()
    port = ports.choose("broker")
    write_state(layout, StackState(ports={"broker": port}))
    assert examine(layout)["ports"].found == f"free: {port}"
    with socket.create_server((ports.HOST, port)):
        finding = examine(layout)["ports"]
    assert finding.good
    assert finding.found.startswith(f"{port} (broker) used by another program")


def test_the_command_shows_marks_and_json_and_has_an_exit_code(layout):
    shown = CliRunner().invoke(main, ["doctor", "--data", str(layout.data)])
    assert "✓ python: 3." in shown.output
    assert "✗ spark jars: not installed" in shown.output
    assert shown.exit_code == 1
    as_json = CliRunner().invoke(main, ["doctor", "--data", str(layout.data), "--json"])
    assert {one["name"] for one in msgspec.json.decode(as_json.output)} >= {"java", "disk"}
