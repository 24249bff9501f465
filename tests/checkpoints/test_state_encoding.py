"""Stored states are read as they were written, from the newest intact file, and make no other class."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.checkpoints.files import NAMES, CheckpointFiles
from testbed.checkpoints.state_encoding import decode, encode
from testbed.checkpoints.stateful import Stateful


@dataclass(frozen=True, slots=True)
class Frozen:
    number: int
    vector: Any


class Plain:
    def __init__(self) -> None:
        self.seen = {3, 1, 2}


TYPES = (Frozen, Plain)


def through_files(folder: Path, value: Any) -> Any:
    with CheckpointFiles.open(folder, TYPES) as files:
        files.write(1, {"value": value})
    return newest(folder)["value"]


def newest(folder: Path) -> Any:
    """Return the newest state, as it is read after the files are opened again."""
    with CheckpointFiles.open(folder, TYPES) as files:
        return files.newest()


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        7,
        2**127 + 1,
        0.1,
        float("inf"),
        -1e-320,
        "text",
        [1, (2, [3])],
        deque([(1.5, 2)]),
        {(1, 2): "pair", 3: {"a": None}, "text": {4, 5}},
        np.float32(0.1),
        frozenset(),
        {},
    ],
)
def test_a_value_comes_back(tmp_path: Path, value: Any) -> None:
    back = through_files(tmp_path, value)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("dtype", ["<f4", "<u4", "<i8", "<f8", "?"])
@pytest.mark.parametrize("shape", [(0,), (3,), (2, 3)])
def test_an_array_comes_back_and_can_be_written(
    tmp_path: Path, dtype: str, shape: tuple[int, ...]
) -> None:
    array = (np.arange(np.prod(shape, dtype=int)).reshape(shape) * 0.3).astype(dtype)
    back = through_files(tmp_path, array)
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(back, array)
    back[...] = 1


def test_an_array_that_is_not_contiguous_comes_back(tmp_path: Path) -> None:
    array = np.arange(12.0).reshape(3, 4)[:, ::2]
    np.testing.assert_array_equal(through_files(tmp_path, array), array)


def test_an_object_that_occurs_twice_is_one_object_again(tmp_path: Path) -> None:
    vector, one = np.arange(3.0), Plain()
    back = through_files(tmp_path, [Frozen(1, vector), vector, {"one": one}, one])
    assert back[0].vector is back[1]
    assert back[2]["one"] is back[3]
    assert back[3].seen == {1, 2, 3}


def test_an_object_can_be_a_key_and_occur_elsewhere(tmp_path: Path) -> None:
    one = Plain()
    back = through_files(tmp_path, [{one: 1}, one])
    assert back[1] in back[0]


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": [1, print]}, r"the state\['a'\]\[1\] cannot be put .* builtin_function_or_method"),
        ([Frozen(1, object())], r"the state\[0\]\.vector cannot be put .* object"),
        (np.array([None]), "an array of object"),
    ],
)
def test_a_value_that_cannot_be_stored_is_named(value: Any, where: str) -> None:
    with pytest.raises(TypeError, match=where):
        encode(value, TYPES)


def test_reading_makes_no_object_of_an_unknown_class() -> None:
    tree, arrays = encode([Frozen(1, None)], TYPES)
    with pytest.raises(ValueError, match="holds a Frozen, which is not known"):
        decode(tree, arrays, [Plain])
    with pytest.raises(ValueError, match="holds a os"):
        decode({"os": "system"}, [], TYPES)


# -- the two files


@pytest.fixture
def files(tmp_path: Path) -> Iterator[CheckpointFiles]:
    with CheckpointFiles.open(tmp_path, ()) as opened:
        yield opened


def test_the_newer_of_two_intact_files_counts(tmp_path: Path, files: CheckpointFiles) -> None:
    assert files.newest() is None
    for version in (10, 20, 30):
        files.write(version, {"version": version})
        assert newest(tmp_path) == {"version": version}


@pytest.mark.parametrize("damage", ["cut", "emptied", "changed", "of another make"])
def test_the_other_file_is_read_if_one_is_damaged(
    tmp_path: Path, files: CheckpointFiles, damage: str
) -> None:
    for version in (10, 20):
        files.write(version, {"version": version, "vector": np.zeros(1000)})
    newer = tmp_path / NAMES[1]
    content = bytearray(newer.read_bytes())
    if damage == "changed":
        content[-1] ^= 1
    elif damage == "of another make":
        content[:4] = b"test"[::-1]
    newer.write_bytes(content[: {"cut": -1, "emptied": 0}.get(damage, len(content))])
    with CheckpointFiles.open(tmp_path, ()) as again:
        assert again.newest()["version"] == 10
        again.write(30, {"version": 30})
        assert newest(tmp_path)["version"] == 30
        again.write(40, {"version": 40})
        assert again.newest(lambda one: one["version"] < 40) == {"version": 30}


def test_a_state_that_does_not_fit_is_overwritten(tmp_path: Path, files: CheckpointFiles) -> None:
    for version in (10, 20):
        files.write(version, {"version": version})
    assert files.newest(lambda one: one["version"] < 20) == {"version": 10}
    files.write(15, {"version": 15})
    assert newest(tmp_path) == {"version": 15}


@pytest.mark.parametrize(("version", "left"), [(9, None), (10, 10), (19, 10), (20, 20), (30, 20)])
def test_cut_back_leaves_no_checkpoint_of_a_later_version(
    tmp_path: Path, files: CheckpointFiles, version: int, left: int | None
) -> None:
    for written in (10, 20):
        files.write(written, {"version": written})
    files.cut_back(version)
    found = newest(tmp_path)
    assert (found and found["version"]) == left
    files.newest()
    files.write(15, {"version": 15})
    assert newest(tmp_path)["version"] == max(15, left or 0)


# -- the state of an object


class Counter(Stateful):
    not_saved = frozenset({"double"})

    def __init__(self) -> None:
        self.vector = np.zeros(3)
        self.count = 0
        self.double = self._twice

    def _twice(self) -> Any:
        return 2 * self.vector


class Longer(Counter):
    not_saved = frozenset({"file"})

    def __init__(self) -> None:
        super().__init__()
        self.file = print
        self.names: list[str] = []


def test_every_attribute_is_state_unless_a_class_makes_it_anew() -> None:
    assert set(Longer().state()) == {"vector", "count", "names"}


def test_arrays_are_filled_in_place() -> None:
    one, other = Longer(), Longer()
    one.vector += 5
    one.names.append("x")
    looks_on = other.vector
    other.restore(one.state())
    assert other.vector is looks_on
    assert (looks_on.tolist(), other.names) == ([5, 5, 5], ["x"])
    assert other.double().tolist() == [10, 10, 10]


def test_a_state_with_an_attribute_that_is_not_saved_is_refused() -> None:
    with pytest.raises(ValueError, match="Longer does not save file"):
        Longer().restore({"file": 3})
