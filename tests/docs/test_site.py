"""``make docs``: the site builds, and every link and anchor in it leads somewhere."""

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.blocks import REPOSITORY


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=REPOSITORY,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout
    start = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "how much accuracy does a byte" in start
    service = (tmp_path / "api" / "training.html").read_text(encoding="utf-8")
    assert "ParameterService" in service
    library = (tmp_path / "api" / "library.html").read_text(encoding="utf-8")
    assert "testbed.library.reading.Runs.curve" in library
