"""Before a query starts: every table exactly as the newest manifest has it.

A killed driver leaves commits that no manifest names; a power cut may leave commit files empty or
cut off, also such that are committed; a checkpoint may be torn. delta-rs raises on a commit that
is cut off, and silently skips one that is empty: so nothing is believed before rows and files
have been counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.delta_log import DeltaLog, read_actions
from pipelines.durable import flush_directory, remove_temporaries, says_no_space, typed_disk_full
from pipelines.manifest import Manifest, ManifestStore, TableState
from pipelines.sinks import create_table
from schemas.errors import Fenced, ManifestDamaged, TableDamaged
from schemas.tables import TABLES, Table

if TYPE_CHECKING:
    from deltalake import DeltaTable

MANIFESTS_COMPARED = 64  # at every start; all of them once something does not add up

_Texts = dict[str, dict[int, str]]  # table -> version -> text of the commit file


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What a start builds on: the tables hold at `versions` what `manifest` committed."""

    manifest: Manifest | None
    manifest_hash: str
    versions: dict[str, int]
    notes: list[str] = field(default_factory=list)  # what was done, in plain sentences


def recover(store: ManifestStore, tables: Path) -> Recovery:
    """Take back what is not committed, mend what is; TableDamaged or ManifestDamaged if it cannot.

    A driver that still runs is not harmed, and cannot harm: what it appends from here on is above
    the versions returned, and its next manifest fails once ours is written.
    """
    manifest, digest = None, ""
    numbers = store.numbers()
    if numbers:
        manifest, digest = store.read_with_hash(numbers[-1])
        remove_temporaries(store.directory)
    notes: list[str] = []
    kept = _Kept(store)
    versions = {}
    with typed_disk_full(tables):
        for name, table in TABLES.items():
            log = DeltaLog(tables / name)
            state = manifest.tables.get(name) if manifest else None
            if state is None:
                _recover_new(log, table, tables, notes)
                versions[name] = 0
            else:
                versions[name] = _recover_known(log, name, state, kept, notes)
    return Recovery(manifest=manifest, manifest_hash=digest, versions=versions, notes=notes)


def _recover_new(log: DeltaLog, table: Table, tables: Path, notes: list[str]) -> None:
    """A table that no manifest names is empty: the first one is written before any append."""
    commits = log.commits()
    if any(version > 0 for version in commits):
        raise ManifestDamaged(
            f"table {table.name} has rows, but no manifest names it: put the directory `manifests`"
            " back, or make the tables again from the log with `farpost rebuild --tables`"
        )
    if 0 in commits and not _readable(commits[0]):
        log.cut(0)
        notes.append(f"{table.name}: had been created only in part and was created again")
    create_table(tables, table)


class _Kept:
    """The texts of commits that manifests keep; the old ones are read only when needed."""

    def __init__(self, store: ManifestStore) -> None:
        self._store = store
        self._recent: _Texts | None = None
        self._all: _Texts | None = None

    def recent(self, table: str) -> dict[int, str]:
        if self._recent is None:
            self._recent = self._read(MANIFESTS_COMPARED)
        return self._recent.get(table, {})

    def all(self, table: str) -> dict[int, str]:
        if self._all is None:
            self._all = self._read(None)
        return self._all.get(table, {})

    def _read(self, limit: int | None) -> _Texts:
        texts: _Texts = {}
        for manifest in self._store.newest_first(limit):
            for name, state in manifest.tables.items():
                for version, text in state.commits:
                    texts.setdefault(name, {}).setdefault(version, text)
        return texts


def _recover_known(
    log: DeltaLog, name: str, state: TableState, kept: _Kept, notes: list[str]
) -> int:
    """Returns the version at which the table holds what the manifest committed."""
    log.directory.mkdir(parents=True, exist_ok=True)
    remove_temporaries(log.directory)
    _rewrite(log, name, state.version, kept.recent(name), notes)
    _drop_torn_checkpoints(log, name, state.version, notes)
    if _holes(log, state.version):
        _rewrite(log, name, state.version, kept.all(name), notes)
    _cut_unreadable(log, name, state.version, notes)
    problem = _problem(log, state)
    if problem is not None:
        _rewrite(log, name, state.version, kept.all(name), notes)
        _drop_checkpoints_if_spare(log, name, state.version, notes)
        problem = _problem(log, state)
    if problem is not None:
        raise TableDamaged(
            f"table {name}: {problem}; make the tables again from the log with"
            " `farpost rebuild --tables`"
        )
    return _restore(log, name, state, notes)


# -- mend what is committed -------------------------------------------------------------------


def _rewrite(
    log: DeltaLog, name: str, version: int, texts: dict[int, str], notes: list[str]
) -> None:
    """Put back each committed commit file that is missing or not as it was written."""
    for number, text in sorted(texts.items()):
        if number <= version and _bytes(log.commit_path(number)) != text.encode():
            log.rewrite(number, text)
            notes.append(f"{name}: commit {number} was damaged and was put back")


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _holes(log: DeltaLog, version: int) -> list[int]:
    """Commits that a reader of this version needs and that are missing or empty."""
    checkpoints = [found for found in log.checkpoints() if found <= version]
    first = max(checkpoints) + 1 if checkpoints else 0
    sizes = {number: path.stat().st_size for number, path in log.commits().items()}
    return [number for number in range(first, version + 1) if not sizes.get(number)]


def _drop_torn_checkpoints(log: DeltaLog, name: str, version: int, notes: list[str]) -> None:
    """A checkpoint is only a summary: one that is in doubt is dropped, the commits remain."""
    doubtful = {found for found in log.checkpoints() if found > version or log.is_torn(found)}
    dropped = log.drop_checkpoints(doubtful)
    if dropped:
        notes.append(f"{name}: checkpoints {dropped} were torn or ahead, and were dropped")


def _drop_checkpoints_if_spare(log: DeltaLog, name: str, version: int, notes: list[str]) -> None:
    """Forget all checkpoints, if every commit since the first is still there to read instead."""
    commits = log.commits()
    if log.checkpoints() and all(commits.get(n) for n in range(version + 1)):
        dropped = log.drop_checkpoints(log.checkpoints())
        notes.append(f"{name}: checkpoints {dropped} did not fit the commits, and were dropped")


def _problem(log: DeltaLog, state: TableState) -> str | None:
    """What keeps the table from being as the manifest says; None if nothing does."""
    try:
        table = _open(log, state.version)
        rows, files = _content(table)
    except Exception as error:  # delta-rs has many; all mean that it cannot be read
        return f"version {state.version} cannot be read ({_first_line(error)})"
    for path, size in files.items():
        found = log.table / path
        actual = found.stat().st_size if found.exists() else None
        if actual != size:
            have = "is missing" if actual is None else f"has {actual} bytes"
            return f"file {path} {have}, it should have {size} bytes"
    if rows != state.rows_total:
        return f"version {state.version} has {rows} rows, the manifest says {state.rows_total}"
    return None


def _open(log: DeltaLog, version: int | None = None) -> DeltaTable:
    from deltalake import DeltaTable

    return DeltaTable(log.table, version=version)


def _content(table: DeltaTable) -> tuple[int, dict[str, int]]:
    """Rows in all, and the size of each file."""
    actions = table.get_add_actions(flatten=True)
    rows = actions.column("num_records").to_pylist()
    files = zip(
        actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist(), strict=True
    )
    return sum(rows), dict(files)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


# -- take back what is not ----------------------------------------------------------------------


def _readable(path: Path) -> bool:
    try:
        read_actions(path.read_bytes())
    except ValueError:
        return False
    return True


def _cut_unreadable(log: DeltaLog, name: str, version: int, notes: list[str]) -> None:
    """Remove uncommitted commits from the first on that cannot be read or does not follow."""
    commits = {number: path for number, path in log.commits().items() if number > version}
    for expected, (number, path) in enumerate(commits.items(), start=version + 1):
        if number != expected or not _readable(path):
            log.cut(number)
            flush_directory(log.directory)
            notes.append(f"{name}: commits from {number} on were torn and were removed")
            return


def _restore(log: DeltaLog, name: str, state: TableState, notes: list[str]) -> int:
    """Take back commits above the manifest's by one more commit, so versions only ever grow."""
    newest = max(log.commits())
    if newest == state.version:
        return newest
    try:
        version = _take_back(log, state.version)
    except Exception as error:
        if isinstance(error, Fenced) or says_no_space(error):
            raise
        # It looks like a commit and is none: nobody can have read it.
        log.cut(state.version + 1)
        notes.append(f"{name}: commits {state.version + 1} to {newest} were removed")
        return state.version
    rows, _ = _content(_open(log, version))
    if rows != state.rows_total:
        raise TableDamaged(
            f"table {name}: {rows} rows after taking back versions above {state.version}, the"
            f" manifest says {state.rows_total}; make the tables again from the log with"
            " `farpost rebuild --tables`"
        )
    notes.append(f"{name}: commits {state.version + 1} to {newest} were taken back")
    return version


def _take_back(log: DeltaLog, version: int) -> int:
    from deltalake import CommitProperties, PostCommitHookProperties
    from deltalake.exceptions import CommitFailedError

    table = _open(log)
    try:
        table.restore(
            version,
            commit_properties=CommitProperties(max_commit_retries=0),
            post_commithook_properties=PostCommitHookProperties(
                create_checkpoint=False, cleanup_expired_logs=False
            ),
        )
    except CommitFailedError as error:
        raise Fenced(
            f"another driver wrote to {log.table.name} during the recovery: stop it, then start"
            " again"
        ) from error
    return table.version()
