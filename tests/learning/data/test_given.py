"""Partitions by owners and by a file of indices: what files say, and what is refused with the line."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given as over
from hypothesis import strategies as st

from testbed.errors import DataError, SpecError
from testbed.learning.data import datasets, given
from testbed.learning.data.partitions import parts


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "parts.txt"
    path.write_bytes(text.encode())
    return path


def test_a_file_of_indices_is_the_partition(tmp_path: Path) -> None:
    path = written(tmp_path, "3 1, 2\r\n0\n5,4\n")
    partition = {"kind": "file", "file": str(path), "sha256": given.digest(path)}
    found = parts(partition, np.zeros(7, np.uint8), 3, 1)
    assert [part.tolist() for part in found] == [[3, 1, 2], [0], [5, 4]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 1\n2 1\n", "line 2: image 1 is on line 1 already: it can be of one worker only, and once"),
        ("0 0\n2\n", "line 1: image 0 is on line 1 already"),
        ("0\n1 7\n", "line 2: there is no image 7: the training images are numbered from 0 to 6"),
        ("0\n\n", "line 2: is empty: each worker needs images"),
        ("0\n1 -2\n", "line 2: '-2' is no index"),
        ("0\n1.5\n", "line 2: '1.5' is no index"),
        ("0\n" + "9" * 5000, f"line 2: '{'9' * 40}' is no index"),
        ("[[0], [1]]\n", "has 1 lines, and 2 workers get images"),
        ("0\n1\n2\n", "has 3 lines, and 2 workers get images: give it a line for each"),
        ("", "has 1 lines, and 2 workers"),
    ],
)  # fmt: skip
def test_what_a_file_of_indices_cannot_be(tmp_path: Path, text: str, expected: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SpecError) as refused:
        given.indices(path, None, 7, 2)
    assert str(refused.value).startswith(f"partition: {path}")
    assert expected in str(refused.value)


def test_a_file_that_has_changed_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "0\n1\n")
    digest = given.digest(path)
    path.write_text("1\n0\n")
    with pytest.raises(SpecError, match="has changed since the experiment was begun"):
        given.indices(path, digest, 7, 2)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match="is not UTF-8 text"):
        given.indices(path, None, 7, 2)
    with pytest.raises(SpecError, match="cannot be read: No such file"):
        given.indices(tmp_path / "none", None, 7, 2)


@over(st.lists(st.integers(0, 12), min_size=1, max_size=80), st.integers(1, 6), st.integers(0, 9))
def test_an_owner_s_images_are_of_one_worker(owners: list[int], devices: int, seed: int) -> None:
    names, known = [f"writer {one}" for one in owners], len(set(owners))
    for per_worker in (None, 1, 2):
        if known < devices * (per_worker or 1):
            with pytest.raises(
                SpecError, match=f"has {known} owners of images, too few for {devices}"
            ):
                given.natural(names, "it", devices, per_worker, seed)
            continue
        found = given.natural(names, "it", devices, per_worker, seed)
        own = [{owners[i] for i in part.tolist()} for part in found]
        assert sum(map(len, own)) == len(set[int]().union(*own))  # no owner twice
        assert [len(part) for part in found] == [sum(o in one for o in owners) for one in own]
        if per_worker is None:
            assert sum(map(len, found)) == len(owners)
            assert max(map(len, own)) - min(map(len, own)) <= 1
        else:
            assert {len(one) for one in own} == {per_worker}


def test_as_many_owners_as_workers_are_in_order() -> None:
    found = given.natural(["10", "9", "10", "2"], "it", 3, None, 1)
    assert [part.tolist() for part in found] == [[3], [1], [0, 2]]
    found = given.natural(["9" * 5000, "010", "9"], "it", 3, None, 1)
    assert [part.tolist() for part in found] == [[2], [1], [0]]


def test_owners_come_from_a_file_or_from_a_column(tmp_path: Path) -> None:
    (tmp_path / "owners.txt").write_text("b\na\nb\n")
    path = tmp_path / "own.npz"
    images, labels = np.zeros((3, 4, 4), np.uint8), np.arange(3)
    np.savez(
        path,
        train_images=images,
        train_labels=labels,
        test_images=images,
        test_labels=labels,
        train_writer=np.array(["b", "a", "b"]),
    )
    of_file = {"kind": "natural", "by": None, "per_worker": None, "sha256": None}
    of_file["file"] = str(tmp_path / "owners.txt")
    one = parts(of_file, labels, 2, 1)
    of_column = {**of_file, "file": None, "by": "writer"}

    def column(name: str) -> list[str]:
        return datasets.training_column(path, None, 1, name)

    other = parts(of_column, labels, 2, 1, column=column)
    assert [part.tolist() for part in one] == [part.tolist() for part in other] == [[1], [0, 2]]
    assert datasets.training_column(path, 2, 1, "writer") == [
        ["b", "a", "b"][label] for label in datasets.training_labels(path, 2, 1)
    ]
    for named in (path, "digits"):
        with pytest.raises(DataError, match="has no column 'hospital': columns are those of"):
            datasets.training_column(named, None, 1, "hospital")
    with_bytes = {**np.load(path), "train_writer": np.array(["é".encode(), b"a", b"b"])}
    np.savez(path, **with_bytes)
    assert datasets.training_column(path, None, 1, "writer") == ["é", "a", "b"]
    np.savez(path, **{**with_bytes, "train_writer": np.array([b"\xe9", b"a", b"b"])})
    with pytest.raises(DataError, match="train_writer cannot be read: 'utf-8' codec"):
        datasets.training_column(path, None, 1, "writer")
    (tmp_path / "owners.txt").write_text("b\n\nb\n")
    with pytest.raises(SpecError, match=r"owners.txt, line 2: is empty"):
        parts(of_file, labels, 2, 1)
    (tmp_path / "owners.txt").write_text("b\n")
    with pytest.raises(SpecError, match="has 1 lines, and there are 3 training images"):
        parts(of_file, labels, 2, 1)
