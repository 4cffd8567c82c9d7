"""The streaming job as an archive for spark-submit."""

from __future__ import annotations

import zipfile
from importlib import metadata
from pathlib import Path

PACKAGES = ("schemas", "pipelines")
MAIN = '''"""The main that spark-submit runs; the job itself is in the archive beside it."""

import sys

from pipelines.job import main

sys.exit(main())
'''
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same sources give the same archive


def pack_job(out: Path) -> tuple[Path, Path]:
    """Write the archive and its main into `out`; the paths of both."""
    out.mkdir(parents=True, exist_ok=True)
    archive = out / f"farpost-job-{metadata.version('farpost')}.zip"
    root = Path(__file__).parent.parent
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for package in PACKAGES:
            for path in sorted((root / package).rglob("*.py")):
                info = zipfile.ZipInfo(str(path.relative_to(root)), _EPOCH)
                packed.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED)
    main = out / "farpost_job.py"
    main.write_text(MAIN, encoding="utf-8")
    return archive, main
