"""A YAML reader that keeps line numbers: plain data for the models, and the line of any path in it.

The data are those of ``yaml.safe_load`` without YAML 1.1's traps: ``1e-3`` is a number; ``on``,
``10:30``, ``012`` and dates are text, which the models then refuse by name; a key given twice is a
problem. The reader makes only text, numbers, booleans, null, lists and mappings.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from testbed.errors import SpecError

KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys and positions that lead from the root to a value."""

_TAG = "tag:yaml.org,2002:"
_SCALARS = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?(?:0|[1-9](?:_?[0-9])*)",
    "float": r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9]+[eE][-+]?[0-9]+"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    "merge": r"<<",
}
FLOAT = re.compile(rf"(?:{_SCALARS['float']})\Z")
"""The pattern of a float; a text that matches it must be quoted when it is written."""


class _Loader(yaml.SafeLoader):
    """A loader that resolves scalars by ``_SCALARS`` and leaves everything else to PyYAML."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML reads this class attribute
        None: [(_TAG + kind, re.compile(rf"(?:{p})\Z")) for kind, p in _SCALARS.items()]
    }


@dataclass
class Document:
    """The content of a file, with line numbers.

    Attributes:
        data: the content; None for an empty file.
        root: the YAML node of the content; None for an empty file.
        problems: errors after which the rest can still be checked: paths, lines and sentences.
    """

    data: Any
    root: yaml.Node | None = None
    problems: list[tuple[KeyPath, int, str]] = field(default_factory=list)

    def line(self, path: KeyPath) -> int:
        """Return the line (from 1) of the value at ``path``, or of its nearest parent in the file."""
        return self._follow(path)[-1][0]

    def has(self, path: KeyPath) -> bool:
        """Return True if the file has a value at ``path``."""
        return len(self._follow(path)) == len(path) + 1

    def _follow(self, path: KeyPath) -> list[tuple[int, yaml.Node | None]]:
        """Return the line and node of the root and of each step of ``path`` that the file has."""
        steps = [(self.root.start_mark.line + 1 if self.root else 1, self.root)]
        for step in path:
            found = _child(steps[-1][1], step)
            if found is None:
                break
            steps.append(found)
        return steps


def parse(text: str, where: str) -> Document:
    """Read YAML; ``where`` is its name in error messages, e.g. the file's name.

    Raises:
        SpecError: it is not YAML, or contains something that an experiment file cannot have.
    """
    try:
        root = yaml.compose(text, Loader=_Loader)
        document = Document(None, root)
        if root is not None:
            document.data = _DataBuilder(document, where).build(root, ())
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise SpecError(
            f"{where}:{line}: is not text: it has the character U+{error.character:04X}"
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{where}:{mark.line + 1}" if mark else where
        reason = " ".join(x for x in (error.context, error.problem) if x)
        hint = " (indent with spaces, not tabs)" if "\\t" in reason else ""
        raise SpecError(f"{place}: is not valid YAML: {reason}{hint}") from None
    except RecursionError:
        raise SpecError(f"{where}: is nested too deeply for an experiment file") from None
    return document


class _DataBuilder:
    """Turns nodes into data; builds an anchored node once, however many aliases refer to it."""

    def __init__(self, document: Document, where: str) -> None:
        self._document = document
        self._where = where
        self._built: dict[int, Any] = {}
        self._open: set[int] = set()

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        if id(node) in self._open:
            raise self._error(node, "an anchor contains itself")
        if id(node) not in self._built:
            self._open.add(id(node))
            self._built[id(node)] = self._build(node, path)
            self._open.remove(id(node))
        return self._built[id(node)]

    def _build(self, node: yaml.Node, path: KeyPath) -> Any:
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self.build(item, (*path, i)) for i, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            try:
                return _scalar(node.tag.removeprefix(_TAG), node.value)
            except (KeyError, ValueError):
                pass
        tag = node.tag.replace(_TAG, "!!")
        raise self._error(node, f"the tag {tag} is of no use here: give a plain value")

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, object]:
        merged: dict[str, object] = {}
        own: dict[str, object] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == _TAG + "merge":
                for source in _merge_sources(value_node):
                    value = self.build(source, path)
                    if not isinstance(value, dict):
                        raise self._error(value_node, "'<<' merges mappings only")
                    merged = value | merged
                continue
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != _TAG + "str":
                text = key_node.value if isinstance(key_node, yaml.ScalarNode) else "..."
                raise self._error(key_node, f"the key {text} is not a name")
            key = key_node.value
            if key in lines:
                text = f"is given twice, first in line {lines[key]}: remove one"
                self._document.problems.append(((*path, key), line, text))
            lines.setdefault(key, line)
            own[key] = self.build(value_node, (*path, key))
        return merged | own

    def _error(self, node: yaml.Node, text: str) -> SpecError:
        return SpecError(f"{self._where}:{node.start_mark.line + 1}: {text}")


def _scalar(kind: str, text: str) -> Any:
    match kind:
        case "str":
            return text
        case "null":
            return None
        case "bool":
            return {"true": True, "false": False}[text.lower()]
        case "int":
            return int(text)
        case "float":
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    raise KeyError(kind)


def _merge_sources(node: yaml.Node) -> list[yaml.Node]:
    return list(node.value) if isinstance(node, yaml.SequenceNode) else [node]


def _child(node: yaml.Node | None, step: str | int) -> tuple[int, yaml.Node] | None:
    """Return the line and node of a list's item, or of a mapping's key (the last of that name)."""
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
        if step < len(node.value):
            item = node.value[step]
            return item.start_mark.line + 1, item
    elif isinstance(node, yaml.MappingNode):
        for key_node, value_node in reversed(node.value):
            if key_node.tag != _TAG + "merge" and key_node.value == step:
                return key_node.start_mark.line + 1, value_node
        return next(_merged_children(node, step), None)
    return None


def _merged_children(node: yaml.MappingNode, step: str | int) -> Iterator[tuple[int, yaml.Node]]:
    for key_node, value_node in node.value:
        if key_node.tag == _TAG + "merge":
            for source in _merge_sources(value_node):
                if (found := _child(source, step)) is not None:
                    yield found
