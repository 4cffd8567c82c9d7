import subprocess
import sys

from farpost.package import pack_job


def test_the_archive_alone_holds_all_that_an_executor_imports(tmp_path):
    archive, main = pack_job(tmp_path)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "import pipelines.stateful, pipelines.unpack, pipelines.job;"
        "print(pipelines.stateful.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(archive)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert done.stdout.startswith(str(archive))
    assert "pipelines.job" in main.read_text()


def test_the_same_sources_give_the_same_archive(tmp_path):
    first, _ = pack_job(tmp_path / "one")
    second, _ = pack_job(tmp_path / "two")
    assert first.read_bytes() == second.read_bytes()
