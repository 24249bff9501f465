"""Datasets that Hugging Face's library has saved: ``save_to_disk`` of a ``DatasetDict``.

The library reads them (``pip install datasets``; an optional extra), so that every encoding of images
that it knows is read. Nothing is fetched: what a run learns from is on the host.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.errors import DataError

if TYPE_CHECKING:
    from datasets import Dataset


def load(
    path: Path,
    image: str | None = None,
    label: str | None = None,
    train: str = "train",
    test: str = "test",
) -> tuple[Any, ...]:
    """Read a dataset.

    Args:
        path: the folder that ``save_to_disk`` wrote.
        image, label: the columns of examples and of labels; None: the only one of its kind.
        train, test: the names of the splits.

    Returns:
        Training images, their labels, test images, their labels; and the number of classes, if the
        column of labels has names for them.

    Raises:
        DataError: the library is missing, the dataset cannot be read, or has no such column.
    """
    splits = _opened(path)
    parts = [_split(splits, path, name) for name in (train, test)]
    image = _column(parts[0], path, image, "image", ("Image",))
    label = _column(parts[0], path, label, "label", ("ClassLabel",))
    found: list[Any] = []
    for part in parts:
        for column in (image, label):
            if column not in part.column_names:
                raise DataError(f"{path}: a split has no column '{column}': {_has(part)}")
        dtype = _dtype(part.features[image])
        values = [_array(one, dtype) for one in part[image]]
        shapes = {one.shape for one in values}
        if len(shapes) != 1:
            sizes = " and ".join(" × ".join(map(str, one)) for one in sorted(shapes)[:2])
            raise DataError(f"{path}: images of {sizes or 'nothing'}: all have one size")
        found += [np.stack(values), np.array(part[label])]
    classes = getattr(parts[0].features[label], "num_classes", None)
    return tuple(found) if classes is None else (*found, int(classes))


def column(name: str, path: Path, train: str = "train", **_others: object) -> list[str] | None:
    """Return the values of a column of the training examples; None if there is none.

    Raises:
        DataError: the library is missing, or the dataset cannot be read.
    """
    part = _split(_opened(path), path, train)
    return [str(one) for one in part[name]] if name in part.column_names else None


def _opened(path: Path) -> Any:
    try:
        import datasets
    except ImportError:
        raise DataError(
            "the library of Hugging Face that reads it is not installed: `pip install datasets`"
        ) from None
    try:
        return datasets.load_from_disk(str(path))
    except Exception as error:  # the library and Arrow raise anything of a damaged folder
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(f"{path} cannot be read: {reason}") from error


def _split(splits: Any, path: Path, name: str) -> "Dataset":
    if not isinstance(splits, dict):
        raise DataError(
            f"{path} is one dataset, and training and test images are needed: save a DatasetDict, for "
            "example that of `train_test_split`"
        )
    if name not in splits:
        raise DataError(
            f"{path} has no split '{name}': it has {', '.join(map(str, splits))}; say which are for "
            "training and for test, for example `test: validation`"
        )
    return splits[name]


def _column(part: Any, path: Path, given: str | None, key: str, kinds: tuple[str, ...]) -> str:
    if given is not None:
        return given
    found = [name for name, of in part.features.items() if type(of).__name__ in kinds]
    found = found or [key] * (key in part.column_names)
    if len(found) != 1:
        raise DataError(f"{path}: which column has the {key}s? {_has(part)}; give it as `{key}`")
    return str(found[0])


def _has(part: Any) -> str:
    return f"it has {', '.join(part.column_names)}"


def _dtype(feature: Any) -> str | None:
    """Return the type of the numbers of a column of arrays; None of images."""
    while (inner := getattr(feature, "feature", None)) is not None:
        feature = inner
    found = getattr(feature, "dtype", None)
    return found if isinstance(found, str) and not hasattr(feature, "decode_example") else None


def _array(value: Any, dtype: str | None) -> Any:
    if not hasattr(value, "getbands"):
        return np.asarray(value, dtype)
    if value.mode not in ("L", "RGB"):  # an image of Pillow, (height, width) or with channels last
        raise DataError(f"an image is of Pillow's mode {value.mode}: images are L or RGB")
    pixels = np.asarray(value)
    return pixels if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
