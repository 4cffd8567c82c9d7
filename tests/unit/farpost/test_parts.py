"""Parts: found again by their mark, ended with all they started, and asked why they died."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from farpost.parts import (
    MARK,
    Child,
    Part,
    Readiness,
    Run,
    error_line,
    is_over,
    kill_leftovers,
    leftovers,
    limit_log,
    marked,
    tail,
    telling_line,
)


@pytest.fixture
def run(tmp_path):
    run = Run(run_id="run1", data=tmp_path, logs=tmp_path, environ=os.environ)
    yield run
    kill_leftovers(tmp_path)


def shell(name, script):
    return Part(
        name=name, command=lambda: ["/bin/sh", "-c", script], ask=lambda: Readiness(ready=True)
    )


def ended(child):
    for _ in range(200):
        if child.ended():
            return child
        time.sleep(0.02)
    raise AssertionError("it goes on")


def started(run, part, count=1):
    """Wait until that many processes of a part can be seen."""
    for _ in range(200):
        if len(marked(run.mark(part))) >= count:
            return marked(run.mark(part))
        time.sleep(0.02)
    raise AssertionError("it did not start")


def test_the_reason_names_exit_code_and_error_line(run):
    child = ended(Child(shell("driver", "echo error: the disk is full >&2; echo bye; exit 3"), run))
    assert child.reason() == "exit code 3: the disk is full"


def test_a_killed_part_is_not_blamed_on_its_last_harmless_line(run):
    child = ended(Child(shell("broker", "echo all is well; kill -9 $$"), run))
    assert child.reason() == "killed by SIGKILL"


def test_the_reason_of_one_life_leaves_out_what_the_life_before_wrote(run):
    ended(Child(shell("driver", "echo error: old; exit 1"), run))
    assert ended(Child(shell("driver", "exit 4"), run)).reason() == "exit code 4"


def test_killing_a_part_ends_what_it_started_in_groups_and_sessions_of_their_own(run):
    script = f"{sys.executable} -c 'import os,time; os.setsid(); time.sleep(60)' & sleep 60 & wait"
    child = Child(shell("driver", script), run)
    processes = started(run, "driver", 3)
    child.kill()
    assert child.is_gone()
    assert all(is_over(process) for process in processes)


def test_a_part_is_not_gone_while_something_it_started_lives(run):
    child = ended(Child(shell("driver", "sleep 60 & exit 0"), run))
    assert not child.is_gone()
    child.kill()
    assert child.is_gone()


def test_asking_to_stop_reaches_only_the_process_itself(run, tmp_path):
    script = "trap 'echo asked; exit 0' TERM; sleep 60 & echo up; wait"
    child = Child(shell("driver", script), run)
    started(run, "driver", 2)
    child.ask_to_stop()
    ended(child)
    assert "asked" in tail(tmp_path / "driver.log")
    assert not child.is_gone()
    child.kill()


def test_leftovers_of_another_run_on_the_same_data_are_found_and_ended(run, tmp_path):
    process = subprocess.Popen(["sleep", "60"], env={MARK: f"old broker {tmp_path}"})
    assert leftovers(tmp_path, run_id="run1") == [(process.pid, "broker")]
    assert kill_leftovers(tmp_path, run_id="run1") == ["broker"]
    assert process.wait() == -9


def test_other_data_and_the_own_run_are_left_alone(tmp_path):
    others = [f"old broker {tmp_path}-2", f"run1 broker {tmp_path}", f"old broker {tmp_path}/sub"]
    processes = [subprocess.Popen(["sleep", "60"], env={MARK: mark}) for mark in others]
    try:
        assert kill_leftovers(tmp_path, run_id="run1") == []
        assert all(process.poll() is None for process in processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_log_at_its_limit_begins_again_and_keeps_one_older_file(tmp_path):
    log = tmp_path / "broker.log"
    log.write_bytes(b"x" * 90 + b"the last one")
    with log.open("ab") as writer:
        limit_log(log, size_max=50)
        writer.write(b"new")
    assert log.read_bytes() == b"new"
    assert (tmp_path / "broker.log.1").read_bytes().endswith(b"the last one")


def test_a_log_below_its_limit_or_absent_is_left_alone(tmp_path):
    log = tmp_path / "broker.log"
    limit_log(log, size_max=50)
    log.write_bytes(b"short")
    limit_log(log, size_max=50)
    assert log.read_bytes() == b"short"
    assert not (tmp_path / "broker.log.1").exists()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("hello\n\n", "hello"),
        ("a\nerror: the port is busy\nb", "the port is busy"),
        ("12:00 ERROR no space left\nshutting down", "12:00 ERROR no space left"),
        ("java.io.IOException: no\n\tat x.Y(Z.java:1)\n\t... 3 more", "java.io.IOException: no"),
        ("starting\n\tat x.Y(Z.java:1)", "starting"),
    ],
)
def test_the_telling_line_is_the_one_a_person_would_pick(text, line):
    assert telling_line(text) == line


def test_without_an_error_there_is_no_error_line():
    assert error_line("2026 WARN slow\nready") == ""


def test_an_absent_log_has_an_empty_tail(tmp_path):
    assert tail(Path(tmp_path / "none.log")) == ""
