"""Encoding of states as JSON and arrays: plain values, and objects of classes that the caller names.

JSON has no tuples, sets, queues or keys other than strings: each of these is a mapping with one key
that names its kind. An array or an object that occurs twice is stored once, and is one again when it is
read. Reading never makes objects of any other class than the named ones.
"""

import re
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_NUMBERS = re.compile(r"[<>|=][biuf](1|2|4|8|16)")


def encode(value: object, types: Collection[type]) -> tuple[Any, list[Array]]:
    """Turn a value into JSON data and the arrays that it refers to.

    Args:
        types: the classes whose objects it may contain; a dataclass is stored by its fields, another
            class by its attributes, a member of an enumeration by its name.

    Raises:
        TypeError: something in it cannot be stored; the message says where.
    """
    encoding = _Encoding(frozenset(types))
    return encoding.of(value, "the state"), encoding.arrays


def decode(tree: Any, arrays: Sequence[Array], types: Collection[type]) -> Any:
    """Return the value that ``encode`` was given; the arrays are used without a copy.

    Raises:
        ValueError: there is a kind of value or a class in it that is not known here.
    """
    return _Decoding(arrays, {kind.__name__: kind for kind in types}).of(tree)


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the type of numbers that is called so; raise ValueError for another name.

    numpy reads some names as Python.
    """
    if not isinstance(name, str) or not _NUMBERS.fullmatch(name):
        raise ValueError(f"a checkpoint holds numbers of the type {str(name)[:20]!r}")
    return np.dtype(name)


class _Encoding:
    """The encoding of one value; keeps every object it meets, so that no other gets the same ``id``."""

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
                    [self.of(key, f"a key of {where}"), self.of(item, f"{where}[{key!r}]")]
                    for key, item in value.items()
                ]
            }
        if isinstance(value, np.generic) and value.dtype.kind in "biuf":
            return {"scalar": [value.dtype.str, value.item()]}
        raise TypeError(f"{where} cannot be put in a checkpoint: it is of the type {kind.__name__}")

    def _collection(self, kind: type, value: Any, where: str) -> Any:
        # Sets are sorted, so that equal states give equal files.
        ordered = sorted(value) if kind in (set, frozenset) else value
        items = [self.of(item, f"{where}[{i}]") for i, item in enumerate(ordered)]
        return items if kind is list else {kind.__name__: items}

    def _array(self, value: Array, where: str) -> int:
        if value.dtype.kind not in "biuf":
            raise TypeError(f"{where} cannot be put in a checkpoint: an array of {value.dtype}")
        at = self._array_at.setdefault(id(value), len(self.arrays))
        if at == len(self.arrays):
            self.arrays.append(value)
        return at

    def _object(self, value: object, where: str) -> Any:
        if isinstance(value, Enum):
            return {"enum": [type(value).__name__, value.name]}
        if id(value) in self._object_at:
            return {"same": self._object_at[id(value)]}
        self._object_at[id(value)] = len(self._objects)
        self._objects.append(value)
        name = type(value).__name__
        of_fields = {
            key: self.of(item, f"{where}.{key}") for key, item in _attributes(value).items()
        }
        return {"object": [name, of_fields]}


class _Decoding:
    def __init__(self, arrays: Sequence[Array], types: Mapping[str, type]) -> None:
        self._arrays = arrays
        self._types = types
        self._objects: list[object] = []
        self._kinds: dict[str, Callable[[Any], Any]] = {
            "array": lambda at: self._arrays[at],
            "same": lambda at: self._objects[at],
            "scalar": lambda content: dtype_of(content[0]).type(content[1]),
            "dict": lambda items: {self.of(key): self.of(item) for key, item in items},
            "object": self._object,
            "enum": self._member,
        }
        for kind in (tuple, deque, set, frozenset):
            self._kinds[kind.__name__] = partial(self._collection, kind)

    def of(self, tree: Any) -> Any:
        if isinstance(tree, list):
            return [self.of(item) for item in tree]
        if not isinstance(tree, dict):
            return tree
        ((kind, content),) = tree.items()
        if kind not in self._kinds:
            raise ValueError(f"a checkpoint holds a {kind}, which is not known here")
        return self._kinds[kind](content)

    def _collection(self, kind: Callable[[Any], Any], items: Any) -> Any:
        return kind(map(self.of, items))

    def _kind(self, name: str) -> type:
        if name not in self._types:
            raise ValueError(f"a checkpoint holds a {name}, which is not known here")
        return self._types[name]

    def _member(self, content: Any) -> object:
        name, member = content
        kind = self._kind(name)
        if not issubclass(kind, Enum):
            raise ValueError(f"a checkpoint holds a member of {name}, which has none")
        return kind[member]

    def _object(self, content: Any) -> object:
        name, of_fields = content
        made: object = object.__new__(self._kind(name))
        self._objects.append(made)  # before its fields, in the order of encoding
        for key, item in of_fields.items():
            object.__setattr__(made, key, self.of(item))  # works for frozen dataclasses, too
        return made


def _attributes(value: object) -> dict[str, Any]:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return dict(vars(value))
