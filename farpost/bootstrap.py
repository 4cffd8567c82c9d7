"""Make a fresh checkout work: virtual environment, locked packages, jars. `make setup` runs this.

Only the standard library, and the modules of ours that need nothing else, are used here. What is
already done is recognised by a stamp and not done again; then no network is needed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

from farpost import jars, tools
from farpost.places import cache_dir
from schemas.errors import DeliveryError, MissingTool, StartFailed

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "farpost-stamp"
LOCK = ROOT / "conf" / "requirements.lock"
INSTALLER_LOCK = ROOT / "conf" / "installer.lock"
INPUTS = (LOCK, INSTALLER_LOCK, ROOT / "pyproject.toml")
INSTALL_TIMEOUT_S = 1_800


def main() -> int:
    """Do all that is missing; the exit code says whether all is there now."""
    started = time.monotonic()
    # The lock is on a file that is always there: two `make` in one checkout wait for each other.
    with (ROOT / "pyproject.toml").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            tools.python()
            tools.java()
            done = _all_at_once()
        except DeliveryError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    if done:
        print(f"set-up: done in {time.monotonic() - started:.0f} s", flush=True)
    return 0


def _all_at_once() -> bool:
    """Maven and the Python packages beside each other; False if there was nothing to do."""
    said: list[str] = []
    failures: list[Exception] = []

    def say(text: str) -> None:
        said.append(text)
        print(f"set-up: {text}", flush=True)

    def fetch_jars() -> None:
        try:
            jars.install(say)
        except Exception as error:
            failures.append(error)

    if any(not jars.jar_dir(name).is_dir() for name in jars.SETS):
        tools.maven()  # before anything is begun that takes long
    thread = threading.Thread(target=fetch_jars)
    thread.start()
    try:
        if not _is_current():
            _install_packages(say)
    finally:
        thread.join()
    if failures:
        raise failures[0]
    return bool(said)


def _is_current() -> bool:
    return STAMP.is_file() and STAMP.read_text(encoding="ascii") == _stamp()


def _stamp() -> str:
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in INPUTS)).hexdigest()
    return f"{digest} {sys.version_info[0]}.{sys.version_info[1]} {ROOT}\n"


def _install_packages(say: jars.Report) -> None:
    STAMP.unlink(missing_ok=True)
    python = VENV / "bin" / "python"
    if not _same_python(python):
        say("virtual environment in .venv")
        shutil.rmtree(VENV, ignore_errors=True)
        _make_venv()
    count = LOCK.read_text(encoding="utf-8").count("==")
    say(f"{count} locked Python packages (the first time about half a minute)")
    uv = VENV / "bin" / "uv"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    # uv takes a third of pip's time. It knows nothing of pip's own configuration, so where
    # packages come from an index that only pip is told of, pip does it.
    if not (
        _run([*pip, "install", "--require-hashes", "-r", str(INSTALLER_LOCK)])
        and _run(
            [str(uv), "pip", "sync", "--quiet", "--compile-bytecode", "--require-hashes", str(LOCK)]
        )
    ):
        say("the same by pip, because uv could not (about two minutes)")
        _must([*pip, "install", "--require-hashes", "-r", str(LOCK)])
    say("farpost itself")
    _must([*pip, "install", "--no-deps", "--no-index", "--no-build-isolation", "-e", str(ROOT)])
    STAMP.write_text(_stamp(), encoding="ascii")


def _same_python(python: Path) -> bool:
    code = "import sys, pip; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([str(python), "-c", code], capture_output=True, check=False)
    except OSError:
        return False
    return done.stdout.split() == [b"%d" % number for number in sys.version_info[:2]]


def _make_venv() -> None:
    if not _run([sys.executable, "-m", "venv", str(VENV)]):
        shutil.rmtree(VENV, ignore_errors=True)
        raise MissingTool(
            "this Python cannot make virtual environments: "
            f"install what is missing with `{tools.install_line('venv')}`"
        )


def _must(command: list[str]) -> None:
    if not _run(command):
        said = _log().read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
        print("\n".join(said), file=sys.stderr)
        raise StartFailed(
            f"the Python packages could not be installed (all that was said is in {_log()}): "
            "look at the network, then run this again"
        )


def _run(command: list[str]) -> bool:
    _log().parent.mkdir(parents=True, exist_ok=True)
    with _log().open("wb") as log:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "VIRTUAL_ENV": str(VENV)},
                timeout=INSTALL_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            log.write(f"{error}\n".encode())
            return False
    return done.returncode == 0


def _log() -> Path:
    return cache_dir() / "setup.log"


if __name__ == "__main__":
    sys.exit(main())
