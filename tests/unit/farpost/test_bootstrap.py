"""Set-up: what it runs, in which order, and that it does nothing twice. Nothing is installed."""

import pytest

from farpost import bootstrap
from schemas.errors import MissingTool, StartFailed


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout in which commands are only written down; `fails` says which of them fail."""
    for name in ("requirements.lock", "installer.lock", "pyproject.toml"):
        (tmp_path / name).write_text("a==1 \\\n")
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(bootstrap, "STAMP", tmp_path / ".venv" / "stamp")
    monkeypatch.setattr(bootstrap, "LOCK", tmp_path / "requirements.lock")
    monkeypatch.setattr(bootstrap, "INSTALLER_LOCK", tmp_path / "installer.lock")
    monkeypatch.setattr(bootstrap, "INPUTS", (tmp_path / "requirements.lock",))
    monkeypatch.setattr(bootstrap, "_log", lambda: tmp_path / "log")
    monkeypatch.setattr(bootstrap.tools, "java", lambda: None)
    monkeypatch.setattr(bootstrap.tools, "maven", lambda: None)
    monkeypatch.setattr(bootstrap.jars, "install", lambda say: None)
    (tmp_path / "log").touch()
    return tmp_path


@pytest.fixture
def ran(checkout, monkeypatch):
    commands, fails = [], []

    def run(command):
        commands.append(" ".join(str(word) for word in command))
        if "-m venv" in commands[-1]:
            bootstrap.VENV.mkdir()
        return not any(word in commands[-1] for word in fails)

    monkeypatch.setattr(bootstrap, "_run", run)
    run.commands, run.fails = commands, fails
    return run


def kinds(ran):
    words = {"-m venv": "venv", "installer.lock": "installer", "uv pip sync": "uv"}
    words |= {"-e ": "itself", "requirements.lock": "pip"}
    return [next(kind for word, kind in words.items() if word in one) for one in ran.commands]


def test_a_fresh_checkout_gets_venv_installer_packages_and_itself(checkout, ran, capsys):
    assert bootstrap.main() == 0
    assert kinds(ran) == ["venv", "installer", "uv", "itself"]
    assert all("--require-hashes" in one for one in ran.commands[1:3])
    assert "--no-index" in ran.commands[-1]
    assert "set-up: 1 locked Python packages" in capsys.readouterr().out


def test_the_second_time_nothing_is_run_and_nothing_said(checkout, ran, capsys):
    bootstrap.main()
    ran.commands.clear()
    capsys.readouterr()
    assert bootstrap.main() == 0
    assert ran.commands == []
    assert capsys.readouterr().out == ""


def test_another_lock_is_installed(checkout, ran):
    bootstrap.main()
    ran.commands.clear()
    (checkout / "requirements.lock").write_text("a==2 \\\n")
    bootstrap.main()
    assert kinds(ran)[-2:] == ["uv", "itself"]


@pytest.mark.parametrize("failing", ["installer.lock", "uv pip sync"])
def test_where_uv_cannot_pip_does_it(checkout, ran, failing):
    ran.fails.append(failing)
    assert bootstrap.main() == 0
    assert kinds(ran)[-2:] == ["pip", "itself"]


def test_a_set_up_that_failed_is_done_again(checkout, ran, capsys):
    ran.fails.append("-e ")
    assert bootstrap.main() == 1
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith("error: the Python packages could not be installed")
    ran.fails.clear()
    ran.commands.clear()
    assert bootstrap.main() == 0
    assert kinds(ran)[-1] == "itself"


def test_a_python_without_venv_is_one_line_with_the_command(checkout, ran, capsys):
    ran.fails.append("-m venv")
    assert bootstrap.main() == 1
    assert "cannot make virtual environments: install what is missing with" in (
        capsys.readouterr().err
    )


def test_missing_java_is_one_line_before_anything_is_begun(checkout, ran, monkeypatch, capsys):
    def missing():
        raise MissingTool("Java 17 or newer is needed")

    monkeypatch.setattr(bootstrap.tools, "java", missing)
    assert bootstrap.main() == 1
    assert capsys.readouterr().err == "error: Java 17 or newer is needed\n"
    assert ran.commands == []


def test_a_failure_of_maven_beside_the_packages_is_reported(checkout, ran, monkeypatch, capsys):
    def fail(say):
        raise StartFailed("Maven could not fetch the spark jars")

    monkeypatch.setattr(bootstrap.jars, "install", fail)
    assert bootstrap.main() == 1
    assert "Maven could not fetch" in capsys.readouterr().err


def test_a_real_command_that_fails_or_is_absent_is_false(checkout):
    assert bootstrap._run(["true"])
    assert not bootstrap._run(["false"])
    assert not bootstrap._run(["/no/such/program"])
    assert "No such file" in (checkout / "log").read_text()
