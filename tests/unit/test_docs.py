"""What the documents say can be done, can be done."""

import re
import shlex
from pathlib import Path

import click
import pytest

from farpost.cli import COMMANDS, main

ROOT = Path(__file__).parents[2]
DOCUMENTS = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/operations.md",
)


def console_lines():
    for name in DOCUMENTS:
        for line in re.findall(r"^\$ (farpost .*)$", (ROOT / name).read_text(), re.MULTILINE):
            yield shlex.split(line, comments=True)


def parse(command, words, parent=None):
    """Let click read the words as a person typed them, without running anything."""
    context = command.make_context(command.name, list(words), parent=parent)
    if isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, context._protected_args + context.args)
        assert name is not None
        parse(found, rest, parent=context)


@pytest.mark.parametrize("words", list(console_lines()), ids=" ".join)
def test_a_command_in_the_documents_is_understood(words):
    parse(main, words[1:])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_documents_and_has_help(name):
    text = "".join((ROOT / document).read_text() for document in DOCUMENTS)
    assert re.search(rf"farpost {name}\b", text) or re.search(rf"`{name}`", text)
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.help


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_leads_somewhere(name):
    document = ROOT / name
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        assert (document.parent / target).exists(), f"{name} links to {target}"


@pytest.mark.parametrize(
    "target", re.findall(r"`make ([a-z-]+)`", (ROOT / "README.md").read_text())
)
def test_every_make_target_of_the_readme_exists(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_architecture_names_every_module():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    modules = {path.stem for path in (ROOT / "pipelines").glob("*.py")} - {"__init__"}
    assert not {name for name in modules if f"`{name}`" not in text}
