"""The tutorial: its files are written, its commands run in order, and what they print is as shown.

Runs are shorter than the page's, so that numbers are others; the words around them are compared.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import REPOSITORY, Block, blocks
from tests.end_to_end.conftest import CommandLine
from tests.needs import why_no_namespaces

PAGE = "docs/tutorial.md"
SHORT = ("--set", "training.updates=60", "--set", "evaluation.every=20")
MISTAKE = ("layout.total", "layout.size")


def of_page() -> list[Block]:
    return [block for block in blocks() if block.page == PAGE]


def words(line: str) -> str:
    """Return a line without its numbers and with equal spaces; bytes have one unit."""
    line = re.sub(r"\b[kMG]B\b", "B", re.sub(r"\d[\d,./]*", "N", line))
    return " ".join(line.split())


@pytest.mark.real
@pytest.mark.exercises("namespaces", needed=False)
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    printed: set[str] = set()
    try:
        for block in of_page():
            if (name := re.fullmatch(r"# (\w+\.\w+)", block.first)) is not None:
                (tmp_path / name[1]).write_text(block.text, encoding="utf-8")
            elif block.language == "sh":
                for line in block.text.splitlines():
                    printed |= carried_out(command, shlex.split(line))
            elif block.first.startswith("testbed: "):
                assert refusal_of_the_mistake(command, tmp_path / "mine.py") == block.text.strip()
            else:
                for line in filter(None, block.text.splitlines()):
                    assert words(line) in printed, f"{block}: nothing has printed: {line}"
    finally:
        command.close()
    assert (tmp_path / "second.svg").stat().st_size > 10_000


def carried_out(command: CommandLine, line: list[str]) -> set[str]:
    """Carry out a command, shorter than the page's; return the words of what it printed."""
    program, *rest = line
    if program == "python":
        assert rest == ["figure.py"]
        done = subprocess.run(
            [sys.executable, *rest],
            cwd=command.folder,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY), "MPLBACKEND": "agg"},
            capture_output=True,
            text=True,
            check=False,
        )
    else:
        if rest[0] == "run" and why_no_namespaces():
            return set()
        if rest[0] == "sweep":
            rest += ["--set", "sweep.seed=[1]", "--at-once", "1", "--no-figures", *SHORT]
        elif rest[0] == "plan":
            rest += SHORT
        elif rest[0] in ("simulate", "run"):
            rest += [*SHORT, "--no-report"]
        done = command.do(*rest)
    assert done.returncode == 0, f"{' '.join(line)}: {done.stderr}"
    return {words(one) for one in done.stdout.splitlines()}


def refusal_of_the_mistake(command: CommandLine, file: Path) -> str:
    right = file.read_text(encoding="utf-8")
    file.write_text(right.replace(*MISTAKE), encoding="utf-8")
    done = command.do("plan", "second.yaml")
    file.write_text(right, encoding="utf-8")
    return done.stderr.strip()
