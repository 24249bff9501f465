"""States as JSON and arrays: the plain values, and objects of the classes that the caller names.

JSON has no tuples, sets, queues or keys that are no texts: whatever it has not itself stands in a
mapping with one key that says what it is. An array or an object that is met twice is stored once, and
is one again when it is read. Nothing but the classes that were named is ever made of what is read.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def encode(value: object, types: Collection[type]) -> tuple[Any, list[Array]]:
    """Turn a value into what JSON can hold, and the arrays that it refers to.

    Args:
        types: whose objects may be in it; of a dataclass its fields are stored, of another class its
            attributes.

    Raises:
        TypeError: something in it cannot be stored; says where.
    """
    encoding = _Encoding(frozenset(types))
    return encoding.of(value, "the state"), encoding.arrays


def decode(tree: Any, arrays: Sequence[Array], types: Collection[type]) -> Any:
    """The value that ``encode`` made this of; arrays are taken as they are.

    Raises:
        ValueError: there is something in it that is none of these.
    """
    return _Decoding(arrays, {kind.__name__: kind for kind in types}).of(tree)


class _Encoding:
    """One value's; what was met is kept, so that no other has its identity meanwhile."""

    def __init__(self, types: frozenset[type]) -> None:
        self.arrays: list[Array] = []
        self._types = types
        self._array_at: dict[int, int] = {}
        self._object_at: dict[int, int] = {}
        self._objects: list[object] = []

    def of(self, value: Any, where: str) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if kind is np.ndarray:
            return {"array": self._array(value, where)}
        if kind in self._types:
            return self._object(value, where)
        if kind in (list, tuple, deque, set, frozenset):
            return self._collection(kind, value, where)
        if kind is dict:
            return {
                "dict": [
                    [self.of(key, f"a key of {where}"), self.of(one, f"{where}[{key!r}]")]
                    for key, one in value.items()
                ]
            }
        if isinstance(value, np.generic) and value.dtype.kind in "biuf":
            return {"scalar": [value.dtype.str, value.item()]}
        raise TypeError(f"{where} cannot be put in a checkpoint: it is of the type {kind.__name__}")

    def _collection(self, kind: type, value: Any, where: str) -> Any:
        # Sets in order, so that the same state is the same file.
        ordered = sorted(value) if kind in (set, frozenset) else value
        items = [self.of(one, f"{where}[{i}]") for i, one in enumerate(ordered)]
        return items if kind is list else {kind.__name__: items}

    def _array(self, value: Array, where: str) -> int:
        if value.dtype.kind not in "biuf":
            raise TypeError(f"{where} cannot be put in a checkpoint: an array of {value.dtype}")
        at = self._array_at.setdefault(id(value), len(self.arrays))
        if at == len(self.arrays):
            self.arrays.append(value)
        return at

    def _object(self, value: object, where: str) -> Any:
        if id(value) in self._object_at:
            return {"same": self._object_at[id(value)]}
        self._object_at[id(value)] = len(self._objects)
        self._objects.append(value)
        name = type(value).__name__
        of_fields = {key: self.of(one, f"{where}.{key}") for key, one in _attributes(value).items()}
        return {"object": [name, of_fields]}


class _Decoding:
    def __init__(self, arrays: Sequence[Array], types: Mapping[str, type]) -> None:
        self._arrays = arrays
        self._types = types
        self._objects: list[object] = []
        self._kinds: dict[str, Callable[[Any], Any]] = {
            "array": lambda at: self._arrays[at],
            "same": lambda at: self._objects[at],
            "scalar": lambda content: np.dtype(content[0]).type(content[1]),
            "dict": lambda items: {self.of(key): self.of(one) for key, one in items},
            "object": self._object,
        }
        for kind in (tuple, deque, set, frozenset):
            self._kinds[kind.__name__] = partial(self._collection, kind)

    def of(self, tree: Any) -> Any:
        if isinstance(tree, list):
            return [self.of(one) for one in tree]
        if not isinstance(tree, dict):
            return tree
        ((what, content),) = tree.items()
        if what not in self._kinds:
            raise ValueError(f"a checkpoint holds a {what}, which is not known here")
        return self._kinds[what](content)

    def _collection(self, kind: Callable[[Any], Any], items: Any) -> Any:
        return kind(map(self.of, items))

    def _object(self, content: Any) -> object:
        name, of_fields = content
        if name not in self._types:
            raise ValueError(f"a checkpoint holds a {name}, which is not known here")
        made: object = object.__new__(self._types[name])
        self._objects.append(made)  # before what is in it, as when it was stored
        for key, one in of_fields.items():
            object.__setattr__(made, key, self.of(one))  # a frozen one, too
        return made


def _attributes(value: object) -> dict[str, Any]:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return dict(vars(value))
