"""The binary formats of CIFAR-10 and CIFAR-100, on files that the tests write, and their archives."""

import hashlib
import io
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from testbed.errors import DataError
from testbed.learning.data import sources
from testbed.learning.data.catalogue import inputs_of
from testbed.learning.data.cifar import CIFARS, PUBLISHED, Cifar
from testbed.learning.data.datasets import contents, load
from testbed.learning.data.fetch import fetch
from testbed.learning.data.holdings import holdings
from testbed.learning.inputs import COLOUR_32


def records(
    images: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8], superclass: bytes
) -> bytes:
    """Return images in the format: labels, then the red, the green and the blue plane."""
    return b"".join(
        superclass + bytes([label]) + image[0].tobytes() + image[1].tobytes() + image[2].tobytes()
        for image, label in zip(images, labels.tolist(), strict=True)
    )


def write(directory: Path, cifar: Cifar = CIFARS["cifar10"]) -> dict[str, npt.NDArray[np.uint8]]:
    """Write files of two images of each class; return each file's images."""
    directory.mkdir(parents=True)
    generator = np.random.default_rng(4)
    count = 2 * cifar.classes
    images = {
        file: generator.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8) for file in cifar.files
    }
    superclass = b"\x13" * (cifar.labels - 1)
    for file, own in images.items():
        labels = np.arange(count, dtype=np.uint8) % cifar.classes
        (directory / file).write_bytes(records(own, labels, superclass))
    return images


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where TESTBED_DATA has the dataset, once it is written; nothing else is there."""
    monkeypatch.setenv("TESTBED_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "data" / "cifar10"


@pytest.mark.parametrize("name", CIFARS)
@pytest.mark.parametrize("in_folder", [False, True])
def test_files_are_read_as_they_were_written(place: Path, name: str, in_folder: bool) -> None:
    cifar, place = CIFARS[name], place.with_name(name)
    images = write(place / cifar.folder if in_folder else place, cifar)
    raw = contents(name)
    np.testing.assert_array_equal(raw.train[0], np.concatenate([images[f] for f in cifar.training]))
    np.testing.assert_array_equal(raw.test[0], images[cifar.test])
    np.testing.assert_array_equal(
        raw.train[1], np.tile(np.arange(cifar.classes), 2 * len(cifar.training))
    )
    assert raw.inputs == inputs_of(name) == replace(COLOUR_32, classes=cifar.classes)


def test_images_are_scaled_by_channel(place: Path) -> None:
    write(place)
    dataset = load("cifar10", "per-channel", train_images=60, seed=3)
    assert dataset.train_images.shape == (60, 3, 32, 32)
    np.testing.assert_allclose(dataset.train_images.mean((0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(dataset.train_images.std((0, 2, 3)), 1, atol=1e-5)


def test_damage_is_reported_with_its_place(place: Path) -> None:
    write(place)
    path = place / "data_batch_3.bin"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(DataError, match=r"data_batch_3.bin has 61,459 bytes, and records"):
        load("cifar10")
    path.write_bytes(whole[:3073] + b"\x0a" + whole[3074:])
    with pytest.raises(DataError, match=r"data_batch_3.bin holds the label 10 at byte 3073"):
        load("cifar10")
    path.write_bytes(b"\1" + whole[1:])
    with pytest.raises(DataError, match=r"class 0 there are 9, of class 1 11"):
        load("cifar10")
    path.unlink()
    with pytest.raises(DataError, match=r"run `testbed data fetch cifar10`"):
        load("cifar10")


def test_the_class_of_a_record_of_cifar_100_is_its_second_label(place: Path) -> None:
    write(place.with_name("cifar100"), CIFARS["cifar100"])
    path = place.with_name("cifar100") / "train.bin"
    whole = path.read_bytes()
    path.write_bytes(whole[:3074] + b"\xff\x64" + whole[3076:])
    with pytest.raises(
        DataError, match=r"holds the label 100 at byte 3075, and CIFAR-100 has 0 to"
    ):
        load("cifar100")


def test_the_archive_is_fetched_unpacked_and_removed(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cifar = CIFARS["cifar10"]
    write(tmp_path / "origin")
    made = tmp_path / "mirror" / cifar.archive
    made.parent.mkdir()
    with tarfile.open(made, "w:gz") as archive:
        for file in cifar.files:
            archive.add(tmp_path / "origin" / file, f"{cifar.folder}/{file}")
        strange = tarfile.TarInfo("../escaped")
        strange.size = 1
        archive.addfile(strange, io.BytesIO(b"x"))
    mirrors = [f"{(tmp_path / 'mirror').as_uri()}/"]
    with pytest.raises(DataError, match=r"the MD5 of what it sent is .*, not c32a1d4a"):
        fetch("cifar10", lambda *_: None, mirrors=mirrors)
    published = replace(cifar, md5=hashlib.md5(made.read_bytes()).hexdigest())
    monkeypatch.setitem(CIFARS, "cifar10", published)
    directory = fetch("cifar10", lambda *_: None, mirrors=mirrors)
    assert directory == sources.cache("cifar10")
    assert sorted(path.name for path in directory.iterdir()) == sorted(cifar.files)
    assert not (directory.parent / "escaped").exists()
    assert len(load("cifar10").train_images) == 100
    for there in (PUBLISHED, (100, 20)):
        monkeypatch.setattr("testbed.learning.data.holdings.PUBLISHED", there)
        (one,) = (found for found in holdings() if found.name == "cifar10")
        assert (one.at, one.train_images) == (str(directory), 100)
        assert one.verified is (there != PUBLISHED), one.problem
    made.unlink()  # what is there is not fetched again
    assert fetch("cifar10", lambda *_: None, mirrors=mirrors) == directory
