"""The root of the command line: light, and never a traceback for an error we raise on purpose."""

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from farpost import cli
from schemas.errors import LogChanged

ROOT = Path(__file__).parents[3]


@pytest.fixture
def run(monkeypatch):
    """Runs the command line with one made-up command, `it`, that does what a test says."""

    def run(body, *arguments):
        command = click.Command("it", callback=body)
        monkeypatch.setitem(cli.COMMANDS, "it", ("made_up:it", "It."))
        module = type(sys)("made_up")
        module.it = command
        monkeypatch.setitem(sys.modules, "made_up", module)
        return CliRunner().invoke(cli.main, ["it", *arguments])

    return run


def test_an_error_raised_on_purpose_is_one_line_and_exit_code_1(run):
    def fail():
        raise LogChanged("the topic\nwas recreated: start anew")

    result = run(fail)
    assert result.exit_code == 1
    assert result.stderr == "error: the topic was recreated: start anew\n"
    assert result.stdout == ""


def test_a_missing_package_of_the_hub_says_what_to_install(run):
    def fail():
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql")

    result = run(fail)
    assert result.exit_code == 1
    assert result.stderr == (
        "error: `farpost it` needs the hub (pyspark is missing): pip install 'farpost[hub]'\n"
    )


def test_a_missing_module_of_ours_is_a_bug_and_looks_like_one(run):
    def fail():
        raise ModuleNotFoundError("No module named 'pipelines.x'", name="pipelines.x")

    assert isinstance(run(fail).exception, ModuleNotFoundError)


def test_wrong_usage_is_exit_code_2(run):
    assert run(lambda: None, "--no-such-option").exit_code == 2
    assert CliRunner().invoke(cli.main, ["no-such-command"]).exit_code == 2


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_loads_and_has_help(name):
    result = CliRunner().invoke(cli.main, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert len(result.output.splitlines()) > 3


def test_the_help_loads_nothing_heavy():
    code = (
        "import sys; from farpost.cli import main; main(['--help'], standalone_mode=False);"
        "print(sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = done.stderr
    for heavy in (
        "kafka",
        "pyspark",
        "pandas",
        "pyarrow",
        "deltalake",
        "psutil",
        "nacl",
        "msgspec",
    ):
        assert f"'{heavy}'" not in loaded
    assert "Commands:" in done.stdout


def test_python_dash_m_is_the_same_program():
    done = subprocess.run(
        [sys.executable, "-m", "farpost", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("Usage: farpost ")
