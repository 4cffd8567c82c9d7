"""The programs that farpost needs from the machine, and the line that installs a missing one.

Only the standard library is needed to import this: set-up does it before anything is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import MissingTool

PYTHON_MIN = (3, 11)
JAVA_MIN = 17
MAVEN_MIN = (3, 6)
PROBE_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A program that was found and is new enough."""

    path: str
    version: str


def java(environ: Mapping[str, str] = os.environ) -> Tool:
    """The Java that Spark would take too: of JAVA_HOME, else the first on the path."""
    home = environ.get("JAVA_HOME", "")
    inside = Path(home) / "bin" / "java"
    path = str(inside) if home and inside.is_file() else shutil.which("java")
    said = _ask([path, "-version"]) if path else ""
    found = re.search(r'version "(?:1\.)?(\d+)[^"]*"', said)
    if path is None or found is None:
        both = ("java",) if shutil.which("mvn") else ("java", "maven")
        raise MissingTool(f"Java {JAVA_MIN} or newer is needed and was not found: {_how(*both)}")
    if int(found[1]) < JAVA_MIN:
        raise MissingTool(
            f"Java {JAVA_MIN} or newer is needed, {path} is Java {found[1]}: {_how('java')}"
            f"{' and unset JAVA_HOME' if path == str(inside) else ''}"
        )
    return Tool(path=path, version=found[0].split('"')[1])


def maven() -> Tool:
    """Maven, which fetches the jars; it is only needed while some are missing."""
    path = shutil.which("mvn")
    said = _ask([path, "-version"]) if path else ""
    found = re.search(r"Apache Maven (\d+)\.(\d+)[.\w-]*", said)
    if path is None or found is None:
        raise MissingTool(f"Maven is needed to fetch the jars and was not found: {_how('maven')}")
    if (int(found[1]), int(found[2])) < MAVEN_MIN:
        raise MissingTool(
            f"Maven {MAVEN_MIN[0]}.{MAVEN_MIN[1]} or newer is needed, {path} is "
            f"{found[0].split()[-1]}: {_how('maven')}"
        )
    return Tool(path=path, version=found[0].split()[-1])


def python() -> Tool:
    """This very Python, if it is new enough."""
    version = ".".join(str(number) for number in sys.version_info[:3])
    if sys.version_info < PYTHON_MIN:
        raise MissingTool(f"Python 3.11 or newer is needed, this is {version}: {_how('python')}")
    return Tool(path=sys.executable, version=version)


def install_line(*names: str) -> str:
    """The command that installs these on this machine."""
    if shutil.which("apt-get"):
        packages = " ".join(_apt_name(name) for name in names)
        return f"{'' if os.geteuid() == 0 else 'sudo '}apt-get install -y {packages}"
    if shutil.which("dnf"):
        return "sudo dnf install -y " + " ".join(_DNF[name] for name in names)
    return "brew install " + " ".join(_BREW[name] for name in names)


_BREW = {"java": "openjdk@17", "maven": "maven", "python": "python@3.12", "venv": "python@3.12"}
_DNF = {"java": "java-17-openjdk-headless", "maven": "maven", "python": "python3.12", "venv": ""}
_APT = {"maven": "maven", "python": "python3.11 python3.11-venv"}


def _how(*names: str) -> str:
    return f"install it with `{install_line(*names)}`"


def _apt_name(name: str) -> str:
    if name == "venv":
        return f"python3.{sys.version_info[1]}-venv"
    if name != "java":
        return _APT[name]
    # No version of Java is in all releases of Debian and Ubuntu: take one that this machine offers.
    offered = _ask(["apt-cache", "search", "--names-only", r"^openjdk-[0-9]+-jdk-headless$"])
    numbers = sorted(int(number) for number in re.findall(r"openjdk-(\d+)-jdk-headless", offered))
    fitting = [number for number in numbers if number >= JAVA_MIN]
    return f"openjdk-{fitting[0] if fitting else JAVA_MIN}-jdk-headless"


def _ask(command: list[str]) -> str:
    """All that a program says of itself; nothing if it cannot be run."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")
