"""Datasets of one's own: arrays, and images in folders or archives."""

import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from testbed.errors import DataError, SpecError
from testbed.learning.data import arrays as own_arrays
from testbed.learning.data.catalogue import inputs_of
from testbed.learning.data.datasets import contents, load, training_labels
from testbed.learning.data.holdings import holdings
from testbed.learning.inputs import Inputs


def arrays(path: Path, **changes: object) -> Path:
    generator = np.random.default_rng(1)
    whole = {
        "train_images": generator.integers(0, 256, (30, 6, 5, 3), dtype=np.uint8),
        "train_labels": np.arange(30) % 4,
        "test_images": generator.integers(0, 256, (8, 6, 5, 3), dtype=np.uint8),
        "test_labels": np.arange(8) % 3,
    } | changes
    np.savez(path, **{key: value for key, value in whole.items() if value is not None})  # type: ignore[arg-type]
    return path


def test_arrays_are_read_channels_first(tmp_path: Path) -> None:
    path = arrays(tmp_path / "own.npz")
    own = contents(str(path))
    given = np.load(path)
    np.testing.assert_array_equal(own.train[0], given["train_images"].transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(training_labels(str(path), None, 1), given["train_labels"])
    assert own.inputs == Inputs((3, 6, 5), 4)
    grey = arrays(
        tmp_path / "grey.npz",
        train_images=given["train_images"][..., 0],
        test_images=given["test_images"][..., 0],
    )
    assert load(str(grey)).test_images.shape == (8, 1, 6, 5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"test_labels": None},
            r"own\.npz has test_images, train_images, train_labels: a dataset has train_images, ",
        ),
        (
            {"train_images": np.full((30, 6, 5, 3), 300)},
            r"train_images is int64 .*uint8, 0 to 255,",
        ),
        (
            {"train_images": np.zeros((30, 3, 32, 32), np.uint8)},
            "with channels first: channels are",
        ),
        ({"train_images": np.zeros((0, 6, 5), np.uint8)}, r"train_images is uint8 of shape \(0, 6"),
        ({"train_labels": np.arange(30) / 2}, "train_labels is float64"),
        ({"train_labels": np.full(30, np.nan)}, "train_labels is float64"),
        ({"train_labels": np.zeros((30, 1), int)}, r"train_labels is int64 of shape \(30, 1\)"),
        ({"train_labels": np.full(30, 1 << 16)}, "outside of 0 to 65,535"),
        ({"train_images": np.zeros((30, 6, 5))}, "train_images is float64"),
        ({"train_labels": np.arange(29)}, r"train_labels is int64 of shape \(29,\)"),
        ({"train_labels": np.arange(30) - 1}, "outside of 0 to 65,535"),
        ({"test_images": np.zeros((8, 5, 5, 3), np.uint8)}, "test images of"),
        (
            {"test_labels": np.array([{}] * 8)},
            r"own\.npz: test_labels cannot be read: Object arrays",
        ),
    ],
)
def test_arrays_of_no_dataset_are_refused(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    with pytest.raises(DataError, match=said):
        load(str(arrays(tmp_path / "own.npz", **changes)))


def test_names_of_others_are_told_once(tmp_path: Path) -> None:
    path = tmp_path / "keras.npz"
    np.savez(path, x_train=1, y_train=1, x_test=1, y_test=1)
    with pytest.raises(DataError) as raised:
        load(str(path))
    assert str(raised.value) == (
        f"{path} has x_test, x_train, y_test, y_train: a dataset has train_images, train_labels, "
        "test_images, test_labels"
    )
    np.savez(path, **{f"array{i:02}": 1 for i in range(99)})  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"has array00, .*, array09 and 89 more: a dataset"):
        load(str(path))


def test_one_array_is_no_file_of_arrays(tmp_path: Path) -> None:
    path = tmp_path / "one.npz"
    with path.open("wb") as file:
        np.save(file, np.zeros((3, 4, 4), np.uint8))
    with pytest.raises(DataError, match=r"one\.npz is one array \(\.npy\)"):
        load(str(path))


def test_arrays_larger_than_memory_are_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = arrays(tmp_path / "own.npz")
    monkeypatch.setattr(os, "sysconf", lambda _: 50)
    with pytest.raises(
        DataError, match=r"unpacks to [\d,]+ bytes, more than this host's memory of"
    ):
        load(str(path))


def test_a_header_that_claims_more_than_there_is_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (9000000000000, 28, 28), }"
    claims = b"\x93NUMPY\x01\0" + (len(header) + 1).to_bytes(2, "little") + header + b"\n"
    with zipfile.ZipFile(path, "w") as file:
        for key in own_arrays.KEYS:
            file.writestr(f"{key}.npy", claims)
    with pytest.raises(DataError, match=r"own\.npz cannot be read as a file of arrays: "):
        load(str(path))


def test_a_damaged_file_of_arrays_is_named(tmp_path: Path) -> None:
    path = arrays(tmp_path / "own.npz")
    content, generator = path.read_bytes(), np.random.default_rng(5)
    damaged = [content[:length] for length in range(0, len(content), 40)]
    for _ in range(300):
        changed = bytearray(content)
        changed[generator.integers(len(content))] ^= 1 << generator.integers(8)
        damaged.append(bytes(changed))
    for one in damaged:
        path.write_bytes(one)
        try:
            own_arrays.read(path)
        except DataError as error:
            assert str(error).startswith(str(path))
            assert "\n" not in str(error)


@pytest.mark.parametrize("name", ["pipe.npz", "pipe.tar", "table.csv", "pipe"])
def test_a_path_that_is_no_dataset_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.startswith("pipe"):
        os.mkfifo(path)
    else:
        path.write_text("1,2\n")
    for ask in (load, inputs_of):
        with pytest.raises(DataError, match=rf"{name} is not a dataset: a path is a directory, or"):
            ask(str(path))


def images(directory: Path) -> Path:
    """Write images of one colour, which tells the class and the number, as PNG files."""
    for part, count in (("train", 12), ("test", 5)):
        for label, name in enumerate(("cat", "dog", "eel")):
            folder = directory / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (7, 4), (label, number, 9)).save(folder / f"{number:02}.png")
    (directory / "train" / "cat" / "notes.txt").write_text("no image")
    return directory


@pytest.mark.parametrize("packed", [False, True])
def test_images_are_read_with_the_labels_of_their_folders(tmp_path: Path, packed: bool) -> None:
    path = images(tmp_path / "pets")
    if packed:
        with tarfile.open(tmp_path / "pets.tar.gz", "w:gz") as archive:
            for part in ("test", "train"):
                archive.add(path / part, part)
        path = tmp_path / "pets.tar.gz"
    assert inputs_of(str(path)) == Inputs((3, 4, 7), 3)
    own = contents(str(path))
    for (pixels, labels), count in ((own.train, 12), (own.test, 5)):
        assert pixels.shape == (3 * count, 3, 4, 7)
        np.testing.assert_array_equal(pixels[:, 0, 0, 0], labels)
        assert (np.bincount(labels) == count).all()
        assert len({tuple(image[:, 0, 0]) for image in pixels}) == 3 * count
        assert len(set(labels[:count])) > 1  # they are not in the order of the classes
    chosen = contents(str(path), train_images=6, seed=2)
    np.testing.assert_array_equal(chosen.train[0][:, 0, 0, 0], chosen.train[1])
    np.testing.assert_array_equal(training_labels(str(path), 6, 2), chosen.train[1])


@pytest.mark.parametrize("packed", [False, True])
def test_a_folder_val_is_for_evaluations_and_there_may_be_many_classes(
    tmp_path: Path, packed: bool
) -> None:
    path = tmp_path / "many"
    for part in ("train", "val"):
        for label in range(300):
            folder = path / part / f"n{label:08}"
            folder.mkdir(parents=True)
            Image.new("L", (2, 2), label // 2).save(folder / "one.png")
    if packed:
        with tarfile.open(tmp_path / "many.tar", "w") as archive:
            for part in ("train", "val"):
                archive.add(path / part, part)
        path = tmp_path / "many.tar"
    assert inputs_of(str(path)) == Inputs((1, 2, 2), 300)
    own = contents(str(path))
    for pixels, labels in (own.train, own.test):
        assert sorted(labels.tolist()) == list(range(300))
        np.testing.assert_array_equal(pixels[:, 0, 0, 0], labels // 2)


def test_labels_of_arrays_may_be_many(tmp_path: Path) -> None:
    path = arrays(tmp_path / "own.npz", train_labels=np.arange(30) * 1000)
    assert load(str(path)).train_labels.tolist() == list(range(0, 30_000, 1000))
    assert inputs_of(str(path)).classes == 29_001


def test_images_that_do_not_fit_are_named(tmp_path: Path) -> None:
    path = images(tmp_path / "pets")
    odd = path / "test" / "dog" / "odd.png"
    for mode, height, of in (
        ("RGB", 5, "7 × 5 pixels in colour"),
        ("L", 4, "7 × 4 pixels in grey"),
    ):
        Image.new(mode, (7, height)).save(odd)
        with pytest.raises(DataError, match=f"odd.png is an image of {of}, others are of"):
            load(str(path))
    odd.write_bytes(b"no image")
    with pytest.raises(DataError, match=r"odd.png is no image that can be decoded"):
        load(str(path))
    odd.rename(odd.with_suffix(".txt"))
    (path / "test" / "fox").mkdir()
    (path / "test" / "eel" / "00.png").rename(path / "test" / "fox" / "00.png")
    with pytest.raises(DataError, match="test has a class that train has not, fox"):
        load(str(path))
    with pytest.raises(SpecError, match="neither one of digits, mnist"):
        load(str(tmp_path / "nothing"))


def test_the_jpeg_variant_of_cifar10_is_known_as_such(real_data: Path) -> None:
    own = load("cifar10-jpeg", "per-channel", train_images=50)
    assert own.train_images.shape == (50, 3, 32, 32)
    assert (np.bincount(own.test_labels) == 1000).all()
    (found,) = (one for one in holdings() if one.name == "cifar10-jpeg")
    assert (found.train_images, found.test_images, found.verified) == (50_000, 10_000, False)
    assert found.problem is not None
    assert "not the published images" in found.problem
