"""The jars: fetched by Maven once, checked against committed hashes, kept in the per-user cache.

Only the standard library is needed to import this: set-up runs it beside the installation of the
Python packages. `python -m farpost.jars` installs; with `--lock` it writes the locks anew.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from farpost import tools
from farpost.places import cache_dir, conf_dir
from schemas.errors import DeliveryError, MissingTool, StartFailed

SETS = ("spark", "broker")
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
MAVEN_TIMEOUT_S = 1_800

Report = Callable[[str], None]


def jars(set_name: str, environ: Mapping[str, str] = os.environ) -> list[Path]:
    """The jars of a set, from the cache; MissingTool says how to fetch them."""
    directory = jar_dir(set_name, environ)
    paths = [directory / name for name in sorted(_locked(set_name))]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise MissingTool(
            f"the jars of the {set_name} are not installed ({missing[0]} is missing): "
            "run `make setup` in a checkout, or `farpost setup`"
        )
    return paths


def install(report: Report, environ: Mapping[str, str] = os.environ) -> None:
    """Fetch the sets that are missing or damaged; with all in place this only checks hashes."""
    for set_name in SETS:
        directory = jar_dir(set_name, environ)
        if directory.is_dir() and not wrong_jars(set_name, directory):
            continue
        report(f"{len(_locked(set_name))} jars of the {set_name}, by Maven")
        part = directory.with_name(f"{directory.name}.part-{os.getpid()}")
        try:
            _fetch(set_name, part)
            wrong = wrong_jars(set_name, part)
            if wrong:
                raise StartFailed(
                    f"{wrong[0]} of the {set_name} jars is not the file that "
                    f"{_conf(set_name) / 'lock.sha256'} names: nothing was installed; if you "
                    "changed the pom, write the lock with `python -m farpost.jars --lock`"
                )
            _put(part, directory)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def jar_dir(set_name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Where a set is kept: another pom or lock is another directory."""
    conf = _conf(set_name)
    lock = conf / "lock.sha256"
    text = (conf / "pom.xml").read_bytes() + (lock.read_bytes() if lock.is_file() else b"")
    digest = hashlib.sha256(text).hexdigest()[:12]
    return cache_dir(environ) / "jars" / f"{set_name}-{digest}"


def wrong_jars(set_name: str, directory: Path) -> list[str]:
    """The names that are missing, additional or of other bytes than the lock says."""
    locked = _locked(set_name)
    found = _hashes(directory)
    return sorted(
        name for name in locked.keys() | found.keys() if locked.get(name) != found.get(name)
    )


def write_lock(set_name: str) -> None:
    """Record the hashes of what Maven brings now; a person looks at the difference."""
    part = cache_dir() / "jars" / f"{set_name}.lock-{os.getpid()}"
    try:
        _fetch(set_name, part)
        lines = [f"{digest}  {name}\n" for name, digest in sorted(_hashes(part).items())]
        (_conf(set_name) / "lock.sha256").write_text("".join(lines), encoding="ascii")
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _put(part: Path, directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    try:
        part.rename(directory)
    except OSError:
        if not directory.is_dir():  # else another set-up was faster with the same jars
            raise


def _conf(set_name: str) -> Path:
    return conf_dir() / "jars" / set_name


def _locked(set_name: str) -> dict[str, str]:
    lock = _conf(set_name) / "lock.sha256"
    pairs = (line.split() for line in lock.read_text(encoding="ascii").splitlines())
    return {name: digest for digest, name in pairs}


def _hashes(directory: Path) -> dict[str, str]:
    hashes = {}
    for path in directory.glob("*.jar"):
        with path.open("rb") as file:
            hashes[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashes


def _fetch(set_name: str, directory: Path) -> None:
    """Let Maven copy a set into a directory of its own."""
    tools.java()
    maven = tools.maven()
    directory.mkdir(parents=True, exist_ok=True)
    command = [
        maven.path,
        *("--quiet", "--batch-mode", "--no-transfer-progress"),
        *("--file", str(_conf(set_name) / "pom.xml")),
        PLUGIN,
        f"-DoutputDirectory={directory}",
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=MAVEN_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StartFailed(
            f"Maven did not fetch the {set_name} jars within {MAVEN_TIMEOUT_S // 60} minutes: "
            "look at the network, then run this again"
        ) from None
    if done.returncode != 0:
        lines = [line for line in done.stdout.decode("utf-8", "replace").splitlines() if line]
        said = next((line for line in lines if "ERROR" in line), "it said nothing")
        raise StartFailed(f"Maven could not fetch the {set_name} jars: {said[:400]}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _main(arguments: list[str]) -> int:
    try:
        if arguments == ["--lock"]:
            for set_name in SETS:
                write_lock(set_name)
        else:
            install(_say)
    except DeliveryError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
