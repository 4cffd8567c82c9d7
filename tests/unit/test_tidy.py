"""What the style asks of the code, as tests: sizes, docstrings, purity, and who imports whom."""

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "pipelines", "edge_node", "api", "farpost")
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
FILE_BYTES_MAX = 512 * 1024

# Decide, do not act: no input or output, no clock, no randomness, no logging.
PURE = {
    "schemas": (
        *("acks", "envelope", "errors", "limits", "policy", "records", "settings", "signals"),
        *("signing", "tables", "topics", "ttl"),
    ),
    "pipelines": (
        *("admit", "batch", "blob", "effects", "fold", "inputs", "lane", "mailbox", "packs"),
        *("ring", "rows", "schedule", "shard", "timers", "turn"),
    ),
    "farpost": ("conservation", "statement", "story"),
}
PURE_NAMES = {f"{package}.{name}" for package, names in PURE.items() for name in names}
# Words and views that a pure module may use, and that are tested through it.
PURE_HELPERS = {"farpost.phrases", "farpost.views"}
IMPURE = {
    *("asyncio", "concurrent", "ctypes", "fcntl", "http", "io", "logging", "mmap"),
    *("multiprocessing", "os", "pathlib", "random", "secrets", "select", "shutil", "signal"),
    *("socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading", "time", "urllib"),
    *("uuid", "click", "deltalake", "fastapi", "kafka", "pandas", "psutil", "pyarrow", "pyspark"),
    "rich",
}
IMPURE_CALLS = {"open", "print", "input", "breakpoint", "exec", "eval", "__import__"}
MAY_IMPORT = {
    "schemas": {"schemas"},
    "pipelines": {"pipelines", "schemas"},
    "edge_node": {"edge_node", "schemas"},
    "api": {"api", "schemas"},
    "farpost": set(PACKAGES),
}


def modules(package):
    return sorted((ROOT / package).rglob("*.py"))


SOURCES = [path for package in PACKAGES for path in modules(package)]
PURE_PATHS = [ROOT / f"{name.replace('.', '/')}.py" for name in sorted(PURE_NAMES)]


def name_of(path):
    return str(path.relative_to(ROOT))


@cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path):
    """The full names that a module imports, at any depth; those only for types left out."""
    for_types = {
        inner
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree_of(path)):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: a relative import"
            # `from pipelines import blob` is the module, `from pipelines.blob import x` too.
            inside = node.module in PACKAGES
            yield from (
                f"{node.module}.{alias.name}" if inside else node.module for alias in node.names
            )


@cache
def tracked():
    """The files that are or will be in a commit."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is not a git checkout")
    paths = (ROOT / line for line in done.stdout.splitlines())
    return [path for path in paths if path.is_file()]


def tracked_texts():
    for path in tracked():
        data = path.read_bytes()
        if b"\0" not in data:
            yield path, data.decode("utf-8")


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_module_is_small_and_says_what_it_is_for(path):
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= MODULE_LINES_MAX, f"{lines} lines, at most {MODULE_LINES_MAX}"
    assert ast.get_docstring(tree_of(path)), "no docstring"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_functions_are_small(path):
    long = [
        f"{node.name} has {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert not long


@pytest.mark.parametrize("path", PURE_PATHS, ids=name_of)
def test_a_pure_module_only_decides(path):
    outside = {name.partition(".")[0] for name in imports(path)} & IMPURE
    assert not outside, f"imports {outside}"
    calls = {
        node.func.id
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & IMPURE_CALLS


@pytest.mark.parametrize("path", PURE_PATHS, ids=name_of)
def test_a_pure_module_imports_only_pure_modules_of_ours(path):
    ours = {name for name in imports(path) if name.partition(".")[0] in PACKAGES}
    assert ours <= PURE_NAMES | PURE_HELPERS


@pytest.mark.parametrize("path", PURE_PATHS, ids=name_of)
def test_a_pure_module_has_a_test_file(path):
    test = ROOT / "tests" / "unit" / path.parent.name / f"test_{path.name}"
    assert test.is_file(), f"{name_of(test)} is missing"


def test_every_module_of_schemas_is_pure():
    found = {path.stem for path in modules("schemas")} - {"__init__"}
    assert found == set(PURE["schemas"])


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_it_may(package):
    for path in modules(package):
        used = {name.partition(".")[0] for name in imports(path)} & set(PACKAGES)
        assert used <= MAY_IMPORT[package], name_of(path)


def test_no_unfinished_work_is_committed():
    words = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
    found = [name_of(path) for path, text in tracked_texts() if words.search(text)]
    assert not found


def test_no_package_registry_is_named():
    parts = (
        *(r"pypi\.", r"pythonhosted\.", r"repo1?\.maven", r"maven\.org", r"crates\.io"),
        *(r"npmjs\.", r"goproxy|proxy\.golang", r"deb\.debian", r"archive\.ubuntu"),
    )
    hosts = re.compile("|".join(parts))
    found = [
        name_of(path)
        for path, text in tracked_texts()
        if hosts.search(text) and path != Path(__file__)
    ]
    assert not found


def test_the_locks_pin_every_package_with_hashes_and_name_no_address():
    locks = sorted((ROOT / "conf").glob("*.lock"))
    assert len(locks) == 2
    for lock in locks:
        text = lock.read_text(encoding="utf-8")
        assert "://" not in text
        assert "--index" not in text
        pinned = re.findall(r"^[\w.-]+==\S+.*$", text, re.M)
        assert pinned
        assert all(line.endswith("\\") for line in pinned)


def test_no_path_outside_the_project_is_named():
    places = re.compile(
        r"(?<![\w.])/(work|root|home)/|\.\./(shared)|\b(SPEC|WIRE|DESIGN|STYLE)\.md"
    )
    found = [
        name_of(path)
        for path, text in tracked_texts()
        if places.search(text) and path != Path(__file__)
    ]
    assert not found


def test_every_text_file_ends_with_one_newline():
    bad = [
        name_of(path)
        for path, text in tracked_texts()
        if text and (not text.endswith("\n") or text.endswith("\n\n"))
    ]
    assert not bad


def test_no_large_file_is_tracked():
    assert not [name_of(path) for path in tracked() if path.stat().st_size > FILE_BYTES_MAX]
