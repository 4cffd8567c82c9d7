"""`farpost logs`."""

import pytest
from click.testing import CliRunner

from farpost.cli import main
from farpost.cli.logs import _since


@pytest.fixture
def data(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "broker.log").write_text("one\ntwo\n")
    (logs / "stack.log").write_text("three\n")
    return tmp_path


def logs(data, *arguments):
    return CliRunner().invoke(main, ["logs", "--data", str(data), *arguments])


def test_the_log_of_one_part_is_shown_as_it_is(data):
    assert logs(data, "broker").output == "one\ntwo\n"


def test_the_logs_of_all_parts_are_shown_with_their_names(data):
    assert logs(data).output == "broker | one\nbroker | two\nstack  | three\n"


def test_only_the_last_lines_are_shown(data):
    assert logs(data, "broker", "-n", "1").output == "two\n"


def test_a_part_without_a_log_is_refused_with_those_that_have_one(data):
    result = logs(data, "api")
    assert result.exit_code == 1
    assert "api has no log" in result.stderr
    assert "there are: broker, stack" in result.stderr


def test_without_any_log_there_is_a_sentence(tmp_path):
    assert "there are no logs" in logs(tmp_path).stderr


def test_following_shows_whole_lines_once_even_if_the_log_begins_again(tmp_path):
    log = tmp_path / "x.log"
    log.write_bytes(b"one\ntw")
    lines, place = _since(log, 0)
    assert lines == ["one"]
    with log.open("ab") as file:
        file.write(b"o\n")
    assert _since(log, place) == (["two"], 8)
    log.write_bytes(b"new\n")
    assert _since(log, 8) == (["new"], 4)
