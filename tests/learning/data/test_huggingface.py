"""Datasets that Hugging Face's library itself has saved, with real images where they are there."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.errors import DataError
from testbed.learning.data import huggingface
from testbed.learning.data.choice import DatasetChoice
from testbed.learning.data.datasets import contents, load, training_column

library: Any = pytest.importorskip("datasets", reason="Hugging Face's datasets is not installed")


def saved(
    folder: Path, images: Any, labels: list[int], writers: list[str] | None = None, **splits: str
) -> Path:
    """Save a dataset, whose test split is the first five of its training split."""
    from PIL import Image

    names = sorted({*map(str, labels)})
    features = {"img": library.Image(), "digit": library.ClassLabel(names=names)}
    columns: dict[str, Any] = {"img": [Image.fromarray(one) for one in images], "digit": labels}
    if writers is not None:
        columns["writer"], features["writer"] = writers, library.Value("string")
    whole = library.Dataset.from_dict(columns, features=library.Features(features))
    first = whole.select(range(5))
    library.DatasetDict({"train": whole, splits.get("test", "test"): first}).save_to_disk(folder)
    return folder


def choice(folder: Path, **options: str) -> DatasetChoice:
    return DatasetChoice("huggingface", {"path": str(folder), **options})


def test_mnist_comes_back_as_it_was(real_data: Path, tmp_path: Path) -> None:
    assert real_data
    real = contents("mnist", train_images=60, seed=3)
    images, labels = real.train
    folder = saved(tmp_path / "mnist", images[:, 0], labels.tolist())
    found = contents(choice(folder))
    np.testing.assert_array_equal(found.train[0], images)
    np.testing.assert_array_equal(found.train[1], labels)
    np.testing.assert_array_equal(found.test[0], images[:5])
    assert found.inputs.classes == 10
    assert load(choice(folder)).train_images.shape == (60, 1, 28, 28)


def test_columns_and_splits_are_found_or_named(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    pixels = generator.integers(0, 256, (12, 6, 5, 3), np.uint8)
    writers = [f"w{i % 4}" for i in range(12)]
    folder = saved(tmp_path / "own", pixels, [i % 3 for i in range(12)], writers, test="validation")
    with pytest.raises(DataError, match="has no split 'test': it has train, validation"):
        contents(choice(folder))
    found = contents(choice(folder, test="validation"))
    np.testing.assert_array_equal(found.train[0], pixels.transpose(0, 3, 1, 2))
    assert training_column(choice(folder), None, 1, "writer") == writers
    with pytest.raises(DataError, match="has no column 'hospital'"):
        training_column(choice(folder), None, 1, "hospital")
    with pytest.raises(DataError, match="a split has no column 'fine': it has img, digit, writer"):
        contents(choice(folder, test="validation", label="fine"))


def test_arrays_keep_their_type(tmp_path: Path) -> None:
    values = np.arange(4 * 3 * 2, dtype=np.uint8).reshape(4, 3, 2)
    part = library.Dataset.from_dict(
        {"image": values.tolist(), "label": [0, 1, 0, 1]},
        features=library.Features(
            {"image": library.Array2D((3, 2), "uint8"), "label": library.Value("int64")}
        ),
    )
    library.DatasetDict({"train": part, "test": part}).save_to_disk(tmp_path / "arrays")
    found = contents(choice(tmp_path / "arrays"))
    assert found.train[0].dtype == np.uint8
    np.testing.assert_array_equal(found.train[0][:, 0], values)


def test_what_is_no_saved_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: "):
        huggingface.load(tmp_path)
    library.Dataset.from_dict({"label": [1]}).save_to_disk(tmp_path / "one")
    with pytest.raises(DataError, match="is one dataset, and training and test images are needed"):
        huggingface.load(tmp_path / "one")
