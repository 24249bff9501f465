"""The two checkpoint files: a damaged one is passed over for the other, whatever is wrong with it."""

import os
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.checkpoints.files import CheckpointFiles
from testbed.checkpoints.records import MAGIC, state_as_bytes, state_of_bytes


def state(version: int) -> dict[str, Any]:
    return {"version": version, "model": np.arange(5.0) * version, "set": {1, 2}, "pair": (1, "b")}


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def nested(path: Path) -> None:
    _written(path, b"[" * 100_000)


def no_state(path: Path) -> None:
    _written(path, b'{"state": [1, 2], "arrays": []}')


def other_array(path: Path) -> None:
    _written(path, b'{"state": {"array": 0}, "arrays": [["|O", [1]]]}')


def numbers_in_python(path: Path) -> None:
    _written(path, b'{"state": {"array": 0}, "arrays": [["<f8,(,)f4", [1]]]}')


def _written(path: Path, head: bytes) -> None:
    """Write a checkpoint of version 9 whose checksum is right."""
    content = struct.pack("<QQ", 9, len(head)) + head
    path.write_bytes(MAGIC + struct.pack("<IQ", zlib.crc32(content), len(content)) + content)


DAMAGES = (pipe, folder, link, cut_off, nested, no_state, other_array, numbers_in_python)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_the_older_checkpoint_is_read_if_the_newer_is_damaged(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    with CheckpointFiles.open(tmp_path / "checkpoints", ()) as files:
        files.write(1, state(1))
        files.write(2, state(2))
    damage(tmp_path / "checkpoints" / "odd")
    with CheckpointFiles.open(tmp_path / "checkpoints", ()) as files:
        found = files.newest(lambda one: one["version"] > 0)
        assert found["version"] == 1 and files.damaged == 1
        files.write(3, state(3))
    with CheckpointFiles.open(tmp_path / "checkpoints", ()) as files:
        assert files.newest()["version"] == 3, "it was written in place of the damaged one"
    assert Path("/etc/passwd").read_bytes().startswith(b"root")


def test_of_two_checkpoints_of_a_version_the_later_counts(tmp_path: Path) -> None:
    with CheckpointFiles.open(tmp_path, ()) as files:
        for number in range(4):
            files.write(min(number, 2), {"number": number})
            assert files.newest() == {"number": number}
    with CheckpointFiles.open(tmp_path, ()) as again:
        assert again.newest() == {"number": 3}
        again.write(2, {"number": 4})
        assert again.newest() == {"number": 4}


def test_mutated_states_are_read_or_refused_by_one_kind_of_error() -> None:
    whole = state_as_bytes(state(1), ())
    refused = 0
    for number in range(3000):
        chance = random.Random(number)
        content = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(content))
            piece = chance.choice((b"[", b"{", b'"', b"9", b"-", b"\0", chance.randbytes(3)))
            content[at : at + chance.randint(0, 3)] = piece
        try:
            state_of_bytes(bytes(content), ())
        except ValueError:
            refused += 1
    assert 1000 < refused < 3000
