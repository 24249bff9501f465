"""Datasets that a function returns: arrays, tensors, datasets like torchvision's, and texts."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from testbed.errors import DataError, SpecError
from testbed.learning.data import catalogue, datasets, partitions
from testbed.learning.data.choice import DatasetChoice
from testbed.learning.inputs import Inputs

Made = Callable[[Callable[..., Any]], DatasetChoice]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """Make a choice of a function, in a module of its own."""

    def make(function: Callable[..., Any], **options: Any) -> DatasetChoice:
        module = ModuleType("own_data")
        module.load = function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "own_data", module)
        return DatasetChoice("own_data:load", options)

    return make


PIXELS = np.random.default_rng(1).integers(0, 256, (30, 3, 6, 5), dtype=np.uint8)
LABELS = np.arange(30) % 4


def test_bytes_are_scaled_and_other_values_are_not(made: Made) -> None:
    tensors = made(lambda: (*map(torch.from_numpy, (PIXELS, LABELS)), PIXELS[:8], LABELS[:8]))
    whole = datasets.load(tensors, "unit")
    np.testing.assert_array_equal(whole.train_images, (PIXELS / 255).astype(np.float32))
    assert whole.inputs == Inputs((3, 6, 5), 4)
    assert whole.train_labels.dtype == np.int64
    values = np.random.default_rng(2).normal(size=(30, 7))
    features = made(lambda: (values, LABELS, values[:8], LABELS[:8]))
    np.testing.assert_array_equal(
        datasets.load(features, None).train_images, values.astype(np.float32)
    )
    with pytest.raises(DataError, match="are no bytes, and are not scaled"):
        datasets.check(features, None, "unit")
    grey = made(lambda: (PIXELS[:, 0], LABELS, PIXELS[:8, 0], LABELS[:8], 9))
    assert catalogue.inputs_of(grey) == Inputs((1, 6, 5), 9)


class Pictures:
    """A dataset like torchvision's, of images of Pillow."""

    def __init__(self, count: int, mode: str = "RGB") -> None:
        self._count, self._mode = count, mode

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: int) -> tuple[Image.Image, int]:
        image = Image.fromarray(PIXELS[at].transpose(1, 2, 0)).convert(self._mode)
        return image, int(LABELS[at])


def test_datasets_like_torchvisions_are_read_item_by_item(made: Made) -> None:
    raw = catalogue.read(made(lambda: (Pictures(30), Pictures(8))))
    np.testing.assert_array_equal(raw.train_images, PIXELS)
    np.testing.assert_array_equal(raw.test_labels, LABELS[:8])
    assert catalogue.inputs_of(made(lambda: (Pictures(9, "L"), Pictures(3, "L")))).image == (
        1,
        6,
        5,
    )
    values = torch.randn(9, 2, 3)
    tensors = TensorDataset(values, torch.arange(9))
    np.testing.assert_array_equal(
        catalogue.read(made(lambda: (tensors, tensors))).test_images, values.numpy()
    )


def fails() -> None:
    raise ValueError("no such year\nsecond line")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (fails, "dataset own_data:load: ValueError: no such year$"),
        (lambda: None, "returns NoneType: it returns four arrays"),
        (lambda: (1, 2, 3), "returns 3 values: it returns four arrays"),
        (lambda: (PIXELS, [1], PIXELS, LABELS), "the training labels are list and no array"),
        (lambda: (PIXELS.astype("i8"), LABELS, PIXELS, LABELS), "examples are int64 of the shape"),
        (lambda: (PIXELS / 0.0, LABELS, PIXELS, LABELS), "values that are not finite"),
        (lambda: (PIXELS, LABELS - 1, PIXELS, LABELS), "labels have the value -1"),
        (lambda: (PIXELS, LABELS[1:], PIXELS, LABELS), "30 training examples and 29 labels"),
        (lambda: (PIXELS, LABELS, PIXELS[:, :2], LABELS), "they are alike"),
        (lambda: (PIXELS, LABELS, PIXELS, LABELS, 3), "from 3 on, the number of its classes"),
        (lambda: (Pictures(9), Pictures(0)), "its test part is empty"),
        (lambda: (Pictures(9), Pictures(9, "CMYK")), "in the mode CMYK: use L or RGB"),
        (lambda: (Pictures(9), PIXELS), "its test part is ndarray: it returns four arrays"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_what_is_no_dataset_is_refused(made: Made, function: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        datasets.check(made(function), None)


def test_a_function_that_returns_other_data_later_is_noticed(made: Made) -> None:
    choice = made(lambda: (PIXELS, LABELS, PIXELS[:8], LABELS[:8]))
    facts = catalogue.facts_of(choice)
    assert facts is not None
    planned = DatasetChoice(choice.name, digest=facts.digest)
    assert catalogue.read(planned).digest == facts.digest
    made(lambda: (PIXELS, LABELS, PIXELS[8:16], LABELS[:8]))
    with pytest.raises(DataError, match="other data than when the run was planned"):
        catalogue.read(planned)


def test_chosen_images_keep_the_classes_of_all(made: Made) -> None:
    choice = made(lambda: (PIXELS, LABELS, PIXELS[:8], LABELS[:8]))
    chosen = datasets.contents(choice, train_images=1, seed=2)
    assert chosen.inputs.classes == 4
    assert len(chosen.train[1]) == len(datasets.training_labels(choice, 1, 2)) == 1
    assert chosen.train[1] == datasets.training_labels(choice, 1, 2)


def text(path: Path, **options: Any) -> DatasetChoice:
    return DatasetChoice("text", {"path": str(path), **options})


def test_a_text_is_rows_of_tokens_and_of_the_tokens_after_them(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("häschen in der grube\r\nsaß und schlief", encoding="utf-8")
    known = sorted(set(path.read_bytes().decode()))
    numbers = [known.index(character) for character in path.read_bytes().decode()]
    raw = catalogue.read(text(path, tokens="characters", context=5, test=0.3))
    rows = (len(numbers) - 1) // 5
    whole = np.concatenate((raw.train_images, raw.test_images))
    np.testing.assert_array_equal(whole.ravel(), numbers[: rows * 5])
    targets = np.concatenate((raw.train_labels, raw.test_labels))
    np.testing.assert_array_equal(targets.ravel(), numbers[1 : rows * 5 + 1])
    assert len(raw.test_images) == round(0.3 * rows)
    assert raw.inputs == Inputs((5,), len(known), tokens=True)
    assert catalogue.inputs_of(text(path, context=3)) == Inputs((3,), 256, tokens=True)
    with pytest.raises(DataError, match="too few for rows of 64"):
        datasets.check(text(path), None)


def test_words_of_two_files_have_one_vocabulary(tmp_path: Path) -> None:
    first, second = tmp_path / "train.txt", tmp_path / "valid.txt"
    first.write_text(" = Valkyria = \n\n the <unk> of the game\n", encoding="utf-8")
    second.write_text("the game , the end\n", encoding="utf-8")
    choice = text(first, tokens="words", context=2, test=str(second))
    assert choice.paths == [first, second]
    raw = catalogue.read(choice)
    # = 0, Valkyria 1, the end of a line 2, the 3, <unk> 4, of 5, game 6, a comma 7, end 8
    assert raw.train_images.tolist() == [[0, 1], [0, 2], [2, 3], [4, 5], [3, 6]]
    assert raw.train_labels.tolist() == [[1, 0], [2, 2], [3, 4], [5, 3], [6, 2]]
    assert raw.test_images.tolist() == [[3, 6], [7, 3]]
    assert raw.test_labels.tolist() == [[6, 7], [3, 8]]
    assert raw.inputs == Inputs((2,), 9, tokens=True)
    second.write_text("the end", encoding="utf-8")
    with pytest.raises(DataError, match=r"valid\.txt has 3 tokens, too few for rows of 4"):
        catalogue.read(text(first, tokens="words", context=4, test=str(second)))


def test_tokens_have_no_labels_to_be_partitioned_by(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(bytes(range(256)))
    labels = catalogue.training_labels(text(path, context=4))
    by_label: Mapping[str, Any] = {"kind": "shards", "per_worker": 2}
    with pytest.raises(SpecError, match="shards goes by the labels"):
        partitions.parts(by_label, labels, 2, 1)
    assert sum(map(len, partitions.parts({"kind": "equal"}, labels, 2, 1))) == len(labels)


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"a" * 100)
    before = catalogue.facts_of(text(path, context=4))
    path.write_bytes(b"b" * 200)
    after = catalogue.facts_of(text(path, context=4))
    assert before is not None
    assert after is not None
    assert before.digest != after.digest
    assert len(after.labels) > len(before.labels)
