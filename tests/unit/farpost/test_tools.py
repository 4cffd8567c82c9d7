"""The tools of the machine, with made-up ones on the path."""

import pytest

from farpost import tools
from schemas.errors import MissingTool


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A path that holds only what a test puts there; `put` makes a program that says a text."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def put(name, text, directory=tmp_path):
        directory.mkdir(parents=True, exist_ok=True)
        said = directory / f"{name}.said"
        said.write_text(f"{text}\n")
        program = directory / name
        program.write_text(f'#!/bin/sh\nwhile read line; do echo "$line"; done < {said}\n')
        program.chmod(0o755)
        return str(program)

    return put


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', "17.0.15"),
        ('java version "21"', "21"),
        ('Picked up JAVA_TOOL_OPTIONS: -X\nopenjdk version "25.0.1" 2026', "25.0.1"),
    ],
)
def test_a_java_that_is_new_enough_is_taken(path, said, version):
    program = path("java", said)
    assert tools.java({}) == tools.Tool(path=program, version=version)


@pytest.mark.parametrize("said", ['openjdk version "11.0.2"', 'java version "1.8.0_402"'])
def test_a_java_that_is_too_old_is_named_with_the_line_that_installs_one(path, said):
    program = path("java", said)
    with pytest.raises(
        MissingTool, match=rf"17 or newer is needed, {program} is Java (11|8): .*inst"
    ):
        tools.java({})


def test_a_java_that_cannot_say_its_version_counts_as_none(path):
    path("java", "The operation couldn't be completed. Unable to locate a Java Runtime.")
    with pytest.raises(MissingTool, match="was not found: install it with"):
        tools.java({})


def test_without_java_and_maven_one_line_installs_both(path):
    path("apt-get", "")
    with pytest.raises(MissingTool, match=r"apt-get install -y openjdk-17-jdk-headless maven`$"):
        tools.java({})


def test_the_java_of_java_home_wins(path, tmp_path):
    path("java", 'openjdk version "17.0.1"')
    program = path("java", 'openjdk version "21.0.1"', tmp_path / "home" / "bin")
    assert tools.java({"JAVA_HOME": str(tmp_path / "home")}).path == program


def test_a_java_that_this_machine_offers_is_proposed(path):
    path("apt-get", "")
    path("apt-cache", "openjdk-21-jdk-headless - JDK\nopenjdk-25-jdk-headless - JDK\n")
    assert tools.install_line("java").endswith("apt-get install -y openjdk-21-jdk-headless")


def test_without_apt_the_line_is_for_brew_or_dnf(path):
    assert tools.install_line("java", "maven") == "brew install openjdk@17 maven"
    path("dnf", "")
    assert tools.install_line("maven") == "sudo dnf install -y maven"


def test_maven_is_taken_if_new_enough(path):
    program = path("mvn", "\x1b[1mApache Maven 3.8.7\x1b[m\nMaven home: /usr")
    assert tools.maven().path == program
    path("mvn", "Apache Maven 3.0.5")
    with pytest.raises(MissingTool, match=r"Maven 3\.6 or newer is needed, .* is 3\.0\.5"):
        tools.maven()


def test_a_missing_maven_is_one_sentence_with_the_line_that_installs_it(path):
    path("apt-get", "")
    with pytest.raises(MissingTool, match=r"was not found: install it with `.*apt-get .* maven`$"):
        tools.maven()


def test_this_python_is_new_enough():
    assert tools.python().version.startswith("3.")
