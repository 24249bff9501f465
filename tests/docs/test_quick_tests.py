"""The quick loop of ``make check``: which tests it has, and which it must not have."""

import re
import subprocess

from tests.docs.blocks import REPOSITORY

MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")


def test_the_quick_tests_are_whole_rooms_without_real_tests() -> None:
    listed = subprocess.run(
        ["make", "--no-print-directory", "-n", "quick"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    command = re.search(r"pytest (.*)", listed)
    assert command is not None
    rooms = re.findall(r"tests/\S+", command[1])
    assert len(rooms) > 20 and all((REPOSITORY / room).exists() for room in rooms)
    assert not {"tests/end_to_end", "tests/kernels", "tests/compose"} & set(rooms)
    assert "not real and not exercises" in command[1]


def test_the_limit_ends_the_loop_with_a_sentence() -> None:
    ended = subprocess.run(
        ["make", "-o", "install", "check", "CHECK_SECONDS=0.01"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert "make check: longer than 0.01 s" in ended.stderr
