"""Where things are: settings, data, caches. Nothing is written anywhere else.

Only the standard library is needed to import this: set-up does it before anything is installed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from schemas.errors import BadSettings, DiskFull, StartFailed

if TYPE_CHECKING:
    from schemas.settings import Settings

ROOM_BYTES_MIN = 64 * 1024 * 1024  # with less, the broker would stop at once


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of one data directory."""

    data: Path

    @property
    def state(self) -> Path:
        """What runs, and the ports to use again: written by the supervisor, read by all."""
        return self.data / "stack.json"

    @property
    def lock(self) -> Path:
        """Locked by the one supervisor of this directory; holds its pid."""
        return self.data / "stack.lock"

    @property
    def log(self) -> Path:
        """Which log these data were made from; exists once the log is ready."""
        return self.data / "log.json"

    @property
    def logs(self) -> Path:
        """What the parts say, a file each."""
        return self.data / "logs"

    @property
    def broker(self) -> Path:
        """All of the local broker."""
        return self.data / "broker"

    @property
    def manifests(self) -> Path:
        """One file per committed manifest."""
        return self.data / "manifests"


def conf_dir() -> Path:
    """The default settings, jar poms and locks: in the package, or beside it in a checkout."""
    packaged = Path(__file__).parent / "conf"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "conf"


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The per-user cache; all in it can be deleted and comes back with the next set-up."""
    return _xdg("XDG_CACHE_HOME", ".cache", environ) / "farpost"


def load_settings(
    conf: Path | str | None = None, environ: Mapping[str, str] = os.environ
) -> Settings:
    """The settings of a file, or the defaults, with the environment over them."""
    from schemas.settings import Settings

    path = Path(conf) if conf else conf_dir() / "default.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadSettings(f"cannot read the settings in {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadSettings(f"the settings in {path} are not UTF-8 text") from None
    try:
        return Settings.parse(text, environ)
    except BadSettings as error:
        raise BadSettings(f"{path}: {error}") from None


def data_dir(
    option: Path | str | None, settings: Settings, environ: Mapping[str, str] = os.environ
) -> Path:
    """The data directory: the option, else the settings (where FARPOST_DATA has already won)."""
    text = str(option or settings.data)
    share = "~/.local/share/"
    if text.startswith(share):
        return (_xdg("XDG_DATA_HOME", ".local/share", environ) / text[len(share) :]).absolute()
    return Path(text).expanduser().absolute()


def make_data_dir(data: Path) -> Layout:
    """Create the directory, or say why nothing can be kept there."""
    layout = Layout(data)
    try:
        layout.logs.mkdir(parents=True, exist_ok=True)
        probe = data / ".writable"
        probe.write_bytes(b"1")
        probe.unlink()
    except OSError as error:
        raise _unwritable(data, error) from None
    room = os.statvfs(data)
    if room.f_bavail * room.f_frsize < ROOM_BYTES_MIN:
        raise DiskFull(
            f"the disk of {data} has less than {ROOM_BYTES_MIN >> 20} MiB left: "
            "free some space, or choose another directory with --data"
        )
    return layout


def _unwritable(data: Path, error: OSError) -> DiskFull | StartFailed:
    if error.errno in (28, 122):  # no space, over quota
        return DiskFull(f"the disk of {data} is full: free some space, or choose another --data")
    return StartFailed(
        f"cannot write to the data directory {data} ({error.strerror}): "
        "give yourself the right to, or choose another directory with --data"
    )


def _xdg(variable: str, fallback: str, environ: Mapping[str, str]) -> Path:
    """A base directory; relative values are to be ignored, says its specification."""
    value = environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path.home() / fallback
