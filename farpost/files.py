"""Whether every data file of the tables is still as it was written: each page has a checksum."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from schemas.errors import TableDamaged

if TYPE_CHECKING:
    from farpost.answers import Answers

ROWS = 64  # at once, for a row may have a quarter of a megabyte


def check_files(answers: Answers) -> None:
    """Read every page of every file; TableDamaged names the first that is not as it was."""
    for name, table in answers.tables.items():
        for address in table.file_uris():
            try:
                _read(_path(address))
            except (OSError, ValueError) as error:  # pyarrow's are of these
                said = (str(error).splitlines() or [type(error).__name__])[0][:200]
                raise TableDamaged(
                    f"table {name}: file {_path(address)} is damaged ({said}): stop the hub and"
                    " make the tables again from the log with `farpost rebuild --tables`"
                ) from error


def _read(path: str) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        for _ in file.iter_batches(batch_size=ROWS):
            pass


def _path(address: str) -> str:
    """A table on a disk names its files by paths, or by addresses of them."""
    return unquote(urlsplit(address).path) if address.startswith("file://") else address
