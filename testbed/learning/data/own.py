"""Datasets that a function returns: the ones of plug-ins, and texts.

The function is called once to plan a run, and once in each process that loads data for itself (the
fork server, a simulation, a container that starts its own role). It must return the same each time: a
role compares the digest. It returns one of

- four arrays or tensors: training examples, their labels, test examples, their labels; and as a fifth
  value, where labels do not show it, the number of classes or of tokens;
- two datasets like torchvision's, for training and for test, with ``__len__`` and a ``__getitem__``
  that returns an example and its label. Each is read once and in its order: what it draws at random it
  draws once, not for every epoch.

Examples are

- uint8: grey images (N, height, width), images (N, channels, height, width) as torch has them, or other
  values (N, values). They are scaled, as ``dataset.scaling`` says. Images of Pillow, grey or RGB, are
  uint8;
- float32 (or float64, which is rounded) of any shape (N, …): models get them as they are;
- int64, (N, positions): tokens, for a model of a language.

Labels are whole numbers from 0, (N,); with tokens int64, (N, positions), the target at each position;
and for a loss of one's own float32, (N, …), any targets.
"""

from typing import Any

import numpy as np

from testbed.errors import DataError
from testbed.learning.data.choice import DatasetChoice
from testbed.learning.data.raw import Array, Raw
from testbed.plugins.names import said_with_place

_WANTED = (
    "it returns four arrays (training examples and their labels, test examples and their labels), or "
    "two datasets whose items are an example and its label"
)


def read(choice: DatasetChoice) -> Raw:
    """Call a dataset's function, and check what it returns.

    Raises:
        DataError: the function fails, or does not return a dataset.
        SpecError: it cannot be imported.
    """
    function, arguments = choice.function, choice.arguments()
    try:
        returned = function(**arguments)
        raw = _raw(returned)
        _check(raw)
    except DataError as error:
        raise DataError(f"dataset {choice}: {error}") from error
    except Exception as error:  # a plug-in's function may raise anything
        raise DataError(f"dataset {choice}: {said_with_place(error).splitlines()[0]}") from error
    return raw


def _raw(returned: Any) -> Raw:
    parts = returned if isinstance(returned, tuple | list) else ()
    if len(parts) == 2 and all(hasattr(part, "__getitem__") for part in parts):
        train, test = (_items(part, of) for part, of in zip(parts, ("train", "test"), strict=True))
        return Raw(*train, *test)
    if len(parts) not in (4, 5):
        what = f"{len(parts)} values" if parts else type(returned).__name__
        raise DataError(f"its function returns {what}: {_WANTED}")
    names = ("training examples", "training labels", "test examples", "test labels")
    arrays = [_array(part, name) for part, name in zip(parts[:4], names, strict=True)]
    classes = None if len(parts) == 4 else parts[4]
    if classes is not None and not (isinstance(classes, int) and classes > 0):
        raise DataError(f"the number of classes is {classes!r}: it is a whole number above 0")
    return Raw(
        _examples(arrays[0], names[0]),
        _labels(arrays[1], names[1]),
        _examples(arrays[2], names[2]),
        _labels(arrays[3], names[3]),
        classes,
    )


def _array(value: Any, name: str) -> Array:
    if hasattr(value, "detach"):  # a tensor; torch need not be imported to ask
        value = value.detach().cpu().numpy()
    if not isinstance(value, np.ndarray):
        raise DataError(f"the {name} are {type(value).__name__} and no array or tensor: {_WANTED}")
    return value


def _items(dataset: Any, of: str) -> tuple[Array, Array]:
    """Read all items of a dataset like torchvision's."""
    if _is_array(dataset) or not hasattr(dataset, "__len__"):
        raise DataError(f"its {of} part is {type(dataset).__name__}: {_WANTED}")
    examples, labels = [], []
    for i in range(len(dataset)):
        item = dataset[i]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(f"item {i} of its {of} part is no pair of an example and its label")
        examples.append(_example(item[0], f"item {i} of its {of} part"))
        labels.append(np.asarray(_array(item[1], "labels") if _is_array(item[1]) else item[1]))
        if examples[-1].shape != examples[0].shape or labels[-1].shape != labels[0].shape:
            raise DataError(
                f"item {i} of its {of} part has the shape {examples[-1].shape} and item 0 "
                f"{examples[0].shape}: all examples have one shape"
            )
    if not examples:
        raise DataError(f"its {of} part is empty")
    return (
        _examples(np.stack(examples), f"{of} examples"),
        _labels(np.stack(labels), f"{of} labels"),
    )


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or hasattr(value, "detach")


def _example(value: Any, name: str) -> Array:
    if not hasattr(value, "getbands"):
        return _array(value, f"contents of {name}")
    if value.mode not in ("L", "RGB"):  # an image of Pillow, (height, width) or with channels last
        raise DataError(f"{name} is an image of Pillow in the mode {value.mode}: use L or RGB")
    pixels = np.asarray(value)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _examples(array: Array, name: str) -> Array:
    if array.ndim < 2 or not array.size:
        raise DataError(f"the {name} have the shape {array.shape}: it is (N, …), with N above 0")
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array[:, None] if array.ndim == 3 else array)
    if array.dtype.kind == "f":
        return _finite(array, name)
    if array.dtype in (np.int32, np.int64) and array.ndim == 2:
        return _from_zero(array, name)
    raise DataError(
        f"the {name} are {array.dtype} of the shape {array.shape}: examples are uint8 (images), "
        "float32, or int64 (tokens, (N, positions))"
    )


def _labels(array: Array, name: str) -> Array:
    if array.dtype.kind == "f":
        return _finite(array, name)
    if array.dtype.kind not in "iu" or array.ndim not in (1, 2):
        raise DataError(
            f"the {name} are {array.dtype} of the shape {array.shape}: labels are whole numbers from "
            "0, (N,), or other targets float32"
        )
    return _from_zero(array, name)


def _finite(array: Array, name: str) -> Array:
    rounded = np.ascontiguousarray(array, np.float32)
    if not np.isfinite(rounded).all():
        raise DataError(f"the {name} have values that are not finite")
    return rounded


def _from_zero(array: Array, name: str) -> Array:
    if array.size and int(array.min()) < 0:
        raise DataError(f"the {name} have the value {int(array.min())}: they are numbered from 0")
    return np.ascontiguousarray(array, np.int64)


def _check(raw: Raw) -> None:
    """Check that the parts of a dataset belong to each other."""
    parts = {
        "training": (raw.train_images, raw.train_labels),
        "test": (raw.test_images, raw.test_labels),
    }
    for of, (examples, labels) in parts.items():
        if len(examples) != len(labels):
            raise DataError(f"it has {len(examples)} {of} examples and {len(labels)} labels")
        tokens = examples.dtype == np.int64
        if tokens and labels.shape != examples.shape:
            raise DataError(
                f"its {of} tokens have the shape {examples.shape} and their targets {labels.shape}: "
                "each position has one"
            )
        if not tokens and labels.dtype.kind == "i" and labels.ndim != 1:
            raise DataError(f"its {of} labels have the shape {labels.shape}: labels are (N,)")
    one, other = ((a.dtype, a.shape[1:], b.dtype, b.shape[1:]) for a, b in parts.values())
    if one != other:
        raise DataError(
            f"its training examples and labels are {one[0]} {one[1]} and {one[2]} {one[3]}, those for "
            f"test {other[0]} {other[1]} and {other[2]} {other[3]}: they are alike"
        )
    whole = [a for pair in parts.values() for a in pair if a.dtype == np.int64]
    if raw.classes is not None and any(int(a.max()) >= raw.classes for a in whole):
        raise DataError(f"it has labels or tokens from {raw.classes} on, the number of its classes")
