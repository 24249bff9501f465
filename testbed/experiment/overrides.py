"""Values that replace the file's: ``training.updates=100`` of a command line, or a program's own.

An override names a path of keys; a list's entry is named by its position from 0, or by its name or
label if it has one; the only entry of a list needs neither. A text's value is read as YAML. The file's
data are copied along the path and must never be changed in place, since anchors may share them; the
models check the result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from testbed.encoding_choice import SHORT_NAMES
from testbed.errors import SpecError
from testbed.experiment.alternatives import expand
from testbed.experiment.document import KeyPath, parse
from testbed.experiment.problems import did_you_mean

_SHORT_FORMS = (("dataset",), ("model",), ("loss",), ("evaluation", "measure"))
_TRACE_KEYS = ("file", "trace", "path")
"""The keys whose values are paths: of traces, plug-ins, and of what a dataset is read from."""


@dataclass(frozen=True)
class Override:
    """One value, from the command line or from a program.

    Attributes:
        option: the option as it was typed, or what else names its origin, for errors.
        path: the path of the value in the file.
        value: the value, as plain data; the paths of traces are absolute.
    """

    option: str
    path: KeyPath
    value: Any


def of_value(key: str, value: Any, option: str) -> Override:
    """Return the override of a dotted key by a value of Python's.

    Args:
        key: such as ``training.updates``; the steps of its path into lists are still text.
        value: plain data, or what stands for them: a tuple, a path, a number of NumPy's.
        option: names the value's origin in errors.

    Raises:
        SpecError: the key has another form.
    """
    path = _steps(key)
    if not all(path):
        raise SpecError(f"{option}: '{key}' is no key: write it as training.updates")
    return Override(option, path, _with_absolute_traces(_plain(value), path[-1]))


def _steps(key: str) -> tuple[str, ...]:
    """Return the steps of a dotted key; a key below ``sweep`` is a dotted key itself."""
    steps = tuple(step.strip() for step in key.split("."))
    return ("sweep", ".".join(steps[1:])) if steps[0] == "sweep" and len(steps) > 1 else steps


def _plain(value: Any) -> Any:
    """Return a value as the plain data that YAML would have made."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, Path) else value


def _read(text: str) -> Override:
    """Read one ``path=value``; the steps of its path into lists are still text.

    Raises:
        SpecError: the text has another form, or its value is not YAML.
    """
    option = f"--set {text}"
    keys, equals, value = text.partition("=")
    path = _steps(keys)
    if not equals or not all(path):
        raise SpecError(f"{option}: write it as key=value, e.g. --set training.updates=100")
    document = parse(value, option)
    if document.problems:
        raise SpecError(f"{option}: {document.problems[0][2]}")
    return Override(option, path, _with_absolute_traces(document.data, path[-1]))


def _with_absolute_traces(value: Any, key: str = "") -> Any:
    """Return a value whose relative paths of traces are from the current folder, not the file's."""
    if isinstance(value, str) and key in _TRACE_KEYS:
        return str(Path(value).expanduser().absolute())
    if isinstance(value, list):
        return [_with_absolute_traces(item) for item in value]
    if isinstance(value, dict):
        return {key: _with_absolute_traces(item, key) for key, item in value.items()}
    return value


def apply(data: Any, overrides: Sequence[str | Override]) -> tuple[Any, list[Override]]:
    """Apply overrides to a file's data, in their order.

    Returns:
        The new data, and the overrides with list positions in their paths.

    Raises:
        SpecError: an override cannot be read, or its path is impossible.
    """
    applied: list[Override] = []
    for given in overrides:
        override = _read(given) if isinstance(given, str) else given
        data, path = _put(data, override.path, override.value, override.option, ())
        applied.append(replace(override, path=path))
    return data, applied


def _put(node: Any, keys: KeyPath, value: Any, option: str, done: KeyPath) -> tuple[Any, KeyPath]:
    """Return a copy of ``node`` with the value at ``keys``, and the value's path from the root."""
    if not keys:
        return value, done
    if done in _SHORT_FORMS or (len(done) == 2 and done[0] == "algorithms"):
        node = expand(node)
    if isinstance(node, str) and done[-1:] == ("encoding",):
        node = SHORT_NAMES.get(node, node)
    key, rest = keys[0], keys[1:]
    if isinstance(node, list):
        at, rest = _position(node, keys, option, done)
        new, path = _put(node[at], rest, value, option, (*done, at))
        return [*node[:at], new, *node[at + 1 :]], path
    if node is not None and not isinstance(node, dict):
        name = ".".join(map(str, done))
        raise SpecError(f"{option}: '{name}' is {node!r} and has no keys to set")
    new, path = _put((node or {}).get(key), rest, value, option, (*done, key))
    return {**(node or {}), key: new}, path


def _position(items: list[Any], keys: KeyPath, option: str, done: KeyPath) -> tuple[int, KeyPath]:
    """Return the position in a list that a path goes on to, and the rest of the path."""
    key, rest = str(keys[0]), keys[1:]
    names = [_names(item) for item in items]
    found = [i for i, candidates in enumerate(names) if key in candidates]
    if len(found) == 1:
        return found[0], rest
    name = ".".join(map(str, done))
    if found:
        among = " or ".join(f"{name}.{i}" for i in found)
        raise SpecError(f"{option}: '{name}' has more than one '{key}': write {among}")
    positions = [str(i) for i in range(len(items))]
    if key in positions:
        return positions.index(key), rest
    if len(items) == 1 and not key.isdecimal():
        return 0, keys  # the only entry needs no name
    if key.isdecimal():
        entries = "entry" if len(items) == 1 else "entries"
        raise SpecError(f"{option}: '{name}' has {len(items)} {entries}, counted from 0")
    hint = did_you_mean(key, [n for candidates in names for n in candidates])
    raise SpecError(
        f"{option}: '{name}' is a list: write a position counted from 0, or an entry's name{hint}"
    )


def _names(item: object) -> set[str]:
    """Return the names by which an entry of a list is known: its short form, its name, its label."""
    named = expand(item)
    if not isinstance(named, dict):
        return set()
    return {n for n in (named.get("name"), named.get("label")) if isinstance(n, str)}
