"""Files that appear whole or not at all, and the typed error of a full disk."""

from __future__ import annotations

import ctypes
import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.errors import DiskFull

TEMPORARY = ".tmp"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def create_file(path: Path, data: bytes, *, flush: bool) -> None:
    """Make a file that is complete from the moment it can be seen; FileExistsError if it is there.

    Without `flush` it is atomic against a killed process, but not yet safe from a power cut.
    """
    temporary = _write_temporary(path, data, flush=flush)
    try:
        # Unlike a rename, a link never replaces what another process put there.
        os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if flush:
        flush_directory(path.parent)


def replace_file(path: Path, data: bytes) -> None:
    """Put these bytes in place of whatever the file holds, durably."""
    os.replace(_write_temporary(path, data, flush=True), path)
    flush_directory(path.parent)


def _write_temporary(path: Path, data: bytes, *, flush: bool) -> Path:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=TEMPORARY, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            if flush:
                os.fsync(file.fileno())
    except BaseException:
        os.unlink(name)
        raise
    return Path(name)


def flush_directory(path: Path) -> None:
    """Make the names in this directory durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_filesystem(path: Path) -> None:
    """Make everything durable that was written to the file system of this directory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "syncfs"):  # not Linux
            os.sync()
        elif libc.syncfs(handle) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(handle)


def remove_temporaries(directory: Path) -> None:
    """Clear away what writers that were killed have left."""
    for path in directory.glob(f".*{TEMPORARY}"):
        path.unlink(missing_ok=True)


@contextmanager
def typed_disk_full(path: Path) -> Iterator[None]:
    """Raise DiskFull for every way in which the libraries say that no space is left."""
    try:
        yield
    except Exception as error:
        if not says_no_space(error):
            raise
        raise disk_full(path) from error


def disk_full(path: Path) -> DiskFull:
    return DiskFull(
        f"no space is left for {path}: free some; nothing that was committed is harmed and the"
        " job goes on by itself"
    )


def says_no_space(error: Exception | str) -> bool:
    """Whether this error, of whatever library, is about a full disk."""
    if isinstance(error, OSError) and error.errno in _NO_SPACE:
        return True
    return any(os.strerror(number) in str(error) for number in _NO_SPACE)
