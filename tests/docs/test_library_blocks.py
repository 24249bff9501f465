"""The Python blocks of the pages on the library and on sweeps: run in order, as one program."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import REPOSITORY, blocks

PAGES = ("docs/library.md",)


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_are_a_program(page: str, tmp_path: Path) -> None:
    program = "".join(one.text for one in blocks("python") if one.page == page)
    assert program
    shutil.copytree(REPOSITORY / "experiments", tmp_path / "experiments")
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for line in program.splitlines():
        said = line.partition("print(error)  # ")[2]
        assert said in done.stdout
