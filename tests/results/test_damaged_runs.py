"""Run directories that are damaged at random are read, or refused by a sentence that names the file."""

import random
import shutil
from pathlib import Path

import pytest

from bench.damaged_runs import damage, try_damages
from bench.fuzz.targets import checkpoints
from tests.results.conftest import WriteRun


def test_readers_of_damaged_directories_give_a_result_or_the_documented_error(
    write_run: WriteRun,
) -> None:
    original = write_run("adacomp-0.01")
    (original / "checkpoints").mkdir()
    for name in ("even", "odd"):
        (original / "checkpoints" / name).write_bytes(b"testbed checkpoint 1\n")
    found = try_damages([original], 12, seed=1)
    assert not found


def test_damages_are_the_same_for_a_seed_and_change_the_directory(write_run: WriteRun) -> None:
    original = write_run("asgd")
    copies = [Path(shutil.copytree(original, original.with_name(name))) for name in "ab"]
    assert damage(copies[0], random.Random(7)) == damage(copies[1], random.Random(7))


def test_states_of_checkpoints_are_read_as_they_were_written() -> None:
    assert all(checkpoints.check(state) for state in checkpoints.corpus())


@pytest.mark.parametrize("content", [b"", b"x", b"\0" * 16, b"\xff" * 16, b"\0" * 15 + b"\x7f"])
def test_what_is_no_state_is_refused(content: bytes) -> None:
    assert not checkpoints.check(content)
