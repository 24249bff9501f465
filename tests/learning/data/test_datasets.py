"""Datasets: where they are found, how they are scaled and split."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from testbed.errors import DataError, SpecError
from testbed.learning.data import sources
from testbed.learning.data.datasets import contents, load, scale, training_labels
from testbed.learning.data.holdings import holdings
from testbed.learning.data.partitions import equal

Writer = Callable[[Path, int, int], None]


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hide all datasets but the bundled one; return the empty cache's directory."""
    monkeypatch.delenv("TESTBED_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_digits_have_known_shapes_types_and_a_stratified_split() -> None:
    dataset = load("digits", "unit")
    assert dataset.train_images.shape == (1442, 1, 28, 28)
    assert dataset.test_images.shape == (355, 1, 28, 28)
    for images, labels in (
        (dataset.train_images, dataset.train_labels),
        (dataset.test_images, dataset.test_labels),
    ):
        assert images.dtype == np.float32
        assert images.flags.c_contiguous
        assert labels.dtype == np.int64
        assert 0 <= images.min() <= images.max() == 1
    of_each = np.bincount(dataset.train_labels) + np.bincount(dataset.test_labels)
    assert np.abs(np.bincount(dataset.test_labels) / of_each - 0.2).max() < 0.01


def test_the_split_of_digits_does_not_depend_on_the_seed() -> None:
    one, two = load("digits", seed=1), load("digits", seed=2)
    np.testing.assert_array_equal(one.test_images, two.test_images)
    np.testing.assert_array_equal(one.train_images, two.train_images)


def test_standardised_scaling_follows_its_formula() -> None:
    grey = np.random.default_rng(0).integers(0, 256, (1500, 28, 28), dtype=np.uint8)
    grey[3] = 0
    grey[4] = 200
    grey[5, 0, 0] = 255
    grey[5].flat[1:] = 254  # its deviation is under 1/28
    x = grey.astype(np.float64)[:, None] / 255
    mean = x.mean(axis=(1, 2, 3), keepdims=True)
    std = x.std(axis=(1, 2, 3), keepdims=True)
    expected = (x - mean) / np.maximum(std, 1 / 28)
    np.testing.assert_allclose(scale(grey[:, None], "standardised"), expected, rtol=1e-6, atol=1e-6)


def test_training_images_are_the_first_of_a_seeded_shuffle() -> None:
    whole = load("digits", "unit")
    fewer = load("digits", "unit", train_images=100, seed=3)
    more = load("digits", "unit", train_images=200, seed=3)
    other = load("digits", "unit", train_images=100, seed=4)
    np.testing.assert_array_equal(fewer.train_images, more.train_images[:100])
    assert not np.array_equal(fewer.train_labels, other.train_labels)
    known = {image.tobytes() for image in whole.train_images}
    assert all(image.tobytes() in known for image in fewer.train_images)
    with pytest.raises(DataError, match="1442 training images, 1443 were asked for"):
        load("digits", train_images=1443)


@pytest.mark.parametrize("train_images", [None, 300])
def test_labels_read_alone_equal_those_of_the_dataset(train_images: int | None) -> None:
    whole = load("digits", train_images=train_images, seed=3)
    assert np.array_equal(training_labels("digits", train_images, 3), whole.train_labels)


def test_labels_alone_are_read_from_a_directory_too(tmp_path: Path, write_idx: Writer) -> None:
    write_idx(tmp_path, 30, 10)
    labels = training_labels(str(tmp_path), 7, 3)
    assert np.array_equal(labels, load(tmp_path, train_images=7, seed=3).train_labels)
    with pytest.raises(DataError, match="were asked for"):
        training_labels(str(tmp_path), 10**6, 3)


def test_a_directory_of_the_user_s_is_loaded(tmp_path: Path, write_idx: Writer) -> None:
    write_idx(tmp_path / "mine", 30, 20)
    dataset = load(tmp_path / "mine", "unit")
    assert dataset.train_images.shape == (30, 1, 28, 28)
    assert dataset.test_labels.tolist() == [i % 10 for i in range(20)]
    (tmp_path / "mine" / sources.FILES[3]).unlink()
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte .* not there"):
        load(tmp_path / "mine")


def test_files_that_do_not_match_are_refused(tmp_path: Path, write_idx: Writer) -> None:
    write_idx(tmp_path, 30, 20)
    train_images, train_labels = (tmp_path / file for file in sources.FILES[:2])
    whole = train_labels.read_bytes()
    train_labels.write_bytes(whole[:7] + bytes((29,)) + whole[8:-1])
    with pytest.raises(DataError, match=r"30 images but .* 29 labels"):
        load(tmp_path)
    train_labels.write_bytes(whole[:-1] + bytes((10,)))
    with pytest.raises(DataError, match="the label 10 at byte 37"):
        load(tmp_path)
    train_labels.write_bytes(whole)
    of_32 = (32).to_bytes(4, "big")
    train_images.write_bytes(
        b"\0\0\x08\3" + (30).to_bytes(4, "big") + of_32 + of_32 + bytes(30 * 32 * 32)
    )
    with pytest.raises(DataError, match="32 × 32; the models take 28 × 28"):
        load(tmp_path)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(SpecError, match=r"'mnits'.* digits, mnist, fashion-mnist"):
        load("mnits")


def test_the_error_for_a_missing_dataset_says_where_it_was_sought(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_idx: Writer
) -> None:
    with pytest.raises(DataError, match="testbed data fetch mnist") as raised:
        load("mnist")
    assert str(nowhere / "testbed" / "mnist") in str(raised.value)
    monkeypatch.setenv("TESTBED_DATA", str(tmp_path / "data"))
    write_idx(tmp_path / "data" / "mnist", 3, 3)
    (tmp_path / "data" / "mnist" / sources.FILES[0]).unlink()
    with pytest.raises(DataError, match=r"data/mnist \(3 of 4 files\)"):
        load("mnist")


def test_a_file_with_another_checksum_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_idx: Writer
) -> None:
    write_idx(tmp_path / "mnist", 3, 3)
    monkeypatch.setenv("TESTBED_DATA", str(tmp_path))
    with pytest.raises(
        DataError, match=r"not the published file.*6bbc9ace898e44ae57da46a324031adb"
    ):
        load("mnist")
    found = {holding.name: holding for holding in holdings()}
    assert found["mnist"].at == str(tmp_path / "mnist")
    assert not found["mnist"].verified
    assert "6bbc9ace" in str(found["mnist"].problem)


def test_another_dataset_directly_in_testbed_data_is_ignored(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_idx: Writer
) -> None:
    write_idx(tmp_path / "files", 3, 3)
    monkeypatch.setenv("TESTBED_DATA", str(tmp_path / "files"))
    with pytest.raises(DataError, match="dataset mnist is not in"):
        load("mnist")


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("directly", [False, True])
def test_the_real_datasets_are_loaded(
    name: str, directly: bool, real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESTBED_DATA", str(real_data / name if directly else real_data))
    dataset = load(name, "unit", train_images=2000)
    assert dataset.train_images.shape == (2000, 1, 28, 28)
    assert dataset.test_images.shape == (10_000, 1, 28, 28)
    assert np.bincount(dataset.test_labels).min() > 850


def test_holdings_list_the_real_datasets(real_data: Path) -> None:
    found = {holding.name: holding for holding in holdings()}
    assert found["digits"].verified
    assert found["mnist"].verified
    assert (found["mnist"].train_images, found["mnist"].test_images) == (60_000, 10_000)
    assert found["mnist"].at == str(real_data / "mnist")


def test_a_part_has_only_the_needed_images_and_zeros_elsewhere() -> None:
    whole = load("digits", train_images=300, seed=3)
    read = contents("digits", train_images=300, seed=3)
    needed = equal(300, 7, 1)[2]
    part = read.part(needed, test=False)
    assert part.train_images[needed].tobytes() == whole.train_images[needed].tobytes()
    others = np.setdiff1d(np.arange(300), needed)
    assert not part.train_images[others].any()
    assert part.train_labels.tobytes() == whole.train_labels.tobytes()
    assert not part.test_images.any()
    tested = read.take(np.arange(0), test=True)
    assert not tested.train_images.any()
    assert tested.test_images.tobytes() == whole.test_images.tobytes()
    assert tested.test_labels.tobytes() == whole.test_labels.tobytes()
    assert not len(read.train[0]) and not len(read.test[0])
    assert whole.take(needed, test=False) is whole
