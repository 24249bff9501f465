"""Graphs of routers, read from GraphML, from JSON, or from the package topohub.

JSON is networkx's node-link format: ``nodes`` with an ``id`` and, maybe, a ``name``; ``edges`` (or
``links``) with ``source`` and ``target``. An edge may say its ``rate``, its ``delay`` or its length in
kilometres (``dist``), its ``jitter``, its ``loss`` and its ``queue``: as numbers in bit/s, seconds,
kilometres, shares and bytes, or with units as in an experiment file. Attributes of GraphML have the
same names.

A link has two directions. An undirected edge gives both the same shape; of directed edges two are a
link, one each way. Whatever else could not be built as it stands is refused.
"""

import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.device_names import may_be_a_device
from testbed.errors import SpecError
from testbed.experiment.sections.directions import parse_delay, parse_queue
from testbed.experiment.sections.graph import GraphSpec
from testbed.network.links import CORE, MOST_LINKS, Shape
from testbed.planning import graphml
from testbed.planning.graphml import Attributes, Described
from testbed.units import UNLIMITED, parse_limit, parse_percentage
from testbed.untrusted_text import open_file

KILOMETRES_PER_SECOND = 200_000.0
"""The speed of light in a fibre: two thirds of that in vacuum."""
LARGEST_FILE = 2**25
"""Bytes of a file that is read: 1 KiB for each link of the address plan."""
LONGEST_NAME = 64
"""Bytes of a router's name: the most of a host name, which the router has for `testbed exec`."""

_COORDINATES = (("Longitude", "Latitude"), ("lon", "lat"), ("x", "y"))
"""Attributes of nodes that say where they are: Topology Zoo's, and others'."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A link between two routers.

    Attributes:
        there: the direction from ``one`` to ``other``.
        back: the direction from ``other`` to ``one``.
    """

    one: str
    other: str
    there: Shape
    back: Shape


@dataclass(frozen=True, slots=True)
class RouterGraph:
    """Routers by their names, and the links between them.

    Attributes:
        positions: of the routers, x to the east and y to the north; empty if not all are known.
    """

    routers: tuple[str, ...]
    edges: tuple[Edge, ...]
    positions: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def read(section: GraphSpec) -> RouterGraph:
    """Read the graph of an experiment.

    Raises:
        SpecError: it cannot be read, is empty or not connected, has a link that cannot be built, or
            says something that is no quantity.
    """
    try:
        content = _of_topohub(section.topohub) if section.topohub else _of_file(str(section.file))
        return _checked(content, section)
    except ValueError as error:
        text = f"network.graph: {section.source} {error}"
        # It may quote the file, which may be somebody else's, on a terminal.
        shown = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
        raise SpecError(shown) from error


def _checked(content: Described, section: GraphSpec) -> RouterGraph:
    """Return the graph that a file describes.

    Raises:
        ValueError: there is none; the message is the end of a sentence about the file.
    """
    if not content.nodes:
        raise ValueError("has no nodes")
    if (most := max(len(content.nodes), len(content.edges))) > MOST_LINKS:
        raise ValueError(
            f"has {most:,} nodes or edges, and the address plan {MOST_LINKS:,} links: use a smaller one"
        )
    ids = [_id_of(node, i, "node", "id") for i, node in enumerate(content.nodes)]
    names = _names(content.nodes, ids)
    found = RouterGraph(
        tuple(names[one] for one in ids),
        tuple(_links(content, names, section)),
        _positions(content.nodes, ids, names),
    )
    _check_that_it_is_connected(found)
    return found


def _of_topohub(key: str) -> Described:
    try:
        import topohub  # type: ignore[import-untyped]
    except ImportError as error:
        raise SpecError(
            "network.graph.topohub: the package topohub is not installed: `pip install topohub`"
        ) from error
    try:
        found: Mapping[str, object] = topohub.get(key)
    except (KeyError, OSError, ValueError) as error:
        raise SpecError(
            f"network.graph.topohub: there is no topology '{key}' in the package topohub; an example "
            "of its names is sndlib/germany50"
        ) from error
    return _node_link(found)


def _of_file(file: str) -> Described:
    """Read a file as what it begins like: GraphML or JSON.

    Raises:
        SpecError, ValueError: it cannot be read; the message of the latter is the end of a sentence.
    """
    try:
        with os.fdopen(open_file(Path(file), follow=True), "rb") as opened:
            content = opened.read(LARGEST_FILE + 1)
    except OSError as error:
        raise SpecError(f"network.graph.file: {file} cannot be read: {error.strerror}") from error
    if len(content) > LARGEST_FILE:
        raise ValueError(f"has more than {LARGEST_FILE >> 20} MiB, the most that is read")
    if Path(file).suffix.casefold() == ".gml":
        raise ValueError(
            "is GML, which is not read: turn it into GraphML, for example by networkx's read_gml and "
            "write_graphml"
        )
    # In UTF-16, which both formats may have, a zero is beside each of these characters.
    if content.lstrip(b"\xef\xbb\xbf\xfe\xff\0 \t\r\n").startswith(b"<"):
        return graphml.parse(content)
    try:
        return _node_link(json.loads(content, object_pairs_hook=_once))
    except RecursionError as error:
        raise ValueError("cannot be read as JSON: it is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"cannot be read as JSON: it is not in {error.encoding}") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"cannot be read as JSON: {error}") from error


def _once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object, of whose keys none is there twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        counted = Counter(key for key, _ in pairs)
        raise ValueError(f"has an object with the key {counted.most_common(1)[0][0][:60]!r} twice")
    return found


def _node_link(found: object) -> Described:
    """Return what networkx's node-link format says.

    Raises:
        ValueError: it is no such value; the message is the end of a sentence about the file.
    """
    if not isinstance(found, dict):
        raise ValueError("is no graph: it is not an object with nodes and edges")
    if "edges" in found and "links" in found:
        raise ValueError("has both 'edges' and 'links': leave one of them in it")
    nodes = _objects(found.get("nodes", ()), "nodes")
    key = "links" if "links" in found else "edges"
    edges = _objects(found.get(key, ()), key)
    flags = []
    for name, otherwise in (("directed", False), ("multigraph", True)):
        flags.append(found.get(name, otherwise))
        if not isinstance(flags[-1], bool):
            raise ValueError(f"has '{name}' as {_shown(flags[-1])}: write true or false")
    directed, multigraph = flags
    described = Described(nodes, edges, (directed,) * len(edges))
    if not directed and not multigraph:
        # networkx writes none of them, and reading them keeps the last.
        pairs: set[frozenset[str]] = set()
        for i, edge in enumerate(edges):
            pair = frozenset(_id_of(edge, i, "edge", end) for end in ("source", "target"))
            if pair in pairs:
                ends = " and ".join(map(_shown, sorted(pair)))
                raise ValueError(
                    f"has two edges between {ends} and says that it is no multigraph: take one out, or "
                    'write "multigraph": true or "directed": true'
                )
            pairs.add(pair)
    return described


def _objects(value: object, key: str) -> tuple[Attributes, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"has '{key}' as {_shown(value)} and not as a list")
    for i, one in enumerate(value):
        if not isinstance(one, dict):
            raise ValueError(f"has {key}[{i}] as {_shown(one)} and not as an object")
    return tuple(value)


def _shown(value: object) -> str:
    """Return a value of a file for a message: short, on one line and without control characters."""
    if value is None or isinstance(value, bool):
        return str(value).replace("None", "null").lower()
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _id_of(item: Attributes, number: int, what: str, key: str) -> str:
    """Return a node's id, or one that an edge names, as text: 1, 1.0 and "1" are the same."""

    def plain(value: object) -> str:
        if isinstance(value, str):
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"has the {key} of {what} {number} as {_shown(item[key])}: write text")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"has the {key} of {what} {number} as {value}: write text")
        return str(int(value) if value == int(value) else value)

    if key not in item:
        raise ValueError(f"has a {what} without '{key}': {_shown(item)}")
    value = item[key]
    if isinstance(value, list | tuple):  # networkx's grids have tuples
        return ",".join(map(plain, value))
    return plain(value)


def _names(nodes: Sequence[Attributes], ids: Sequence[str]) -> dict[str, str]:
    """Return the routers' names by the nodes' ids.

    They are the nodes' own names, where all of them differ, or else the ids, or else numbers.
    """
    for one, count in Counter(ids).items():
        if count > 1:
            raise ValueError(f"has {count} nodes with the id {_shown(one)}: give each its own")
    own = [_own_name(node, one) for node, one in zip(nodes, ids, strict=True)]
    numbered = [f"node-{i}" for i in range(len(ids))]
    for wanted in (own, ids, numbered):
        names = [_as_name(one) for one in wanted]
        if all(names) and len(set(names)) == len(names):
            break
    for name in names:
        if name == CORE:
            raise ValueError(
                f"has a node called '{CORE}', as the router beside the server is: rename it"
            )
        if may_be_a_device(name):
            raise ValueError(f"has a node called '{name}', as a device of a run may be: rename it")
    return dict(zip(ids, names, strict=True))


def _own_name(node: Attributes, otherwise: str) -> str:
    """Return a node's name or label, if it has one of which a router's can be made."""
    for key in ("name", "label"):
        value = node.get(key)
        if isinstance(value, str | int | float) and _as_name(str(value)):
            return str(value)
    return otherwise


def _as_name(text: str) -> str:
    """Return a router's name: no hidden file, no option, nothing that a shell or terminal reads."""
    name = re.sub(r"[^\w.-]+", "-", text).lstrip("-.")
    return name.encode()[:LONGEST_NAME].decode(errors="ignore")


def _positions(
    nodes: Sequence[Attributes], ids: Sequence[str], names: Mapping[str, str]
) -> dict[str, tuple[float, float]]:
    """Return where the routers are, as ``pos`` of topohub or attributes of other sources say."""
    found = {}
    for node, one in zip(nodes, ids, strict=True):
        pairs = [node.get("pos")] + [[node.get(x), node.get(y)] for x, y in _COORDINATES]
        for pair in pairs:
            if isinstance(pair, list | tuple) and len(pair) == 2 and all(map(_is_place, pair)):
                found[names[one]] = (float(pair[0]), float(pair[1]))
                break
    return found if len(found) == len(names) else {}


def _is_place(value: object) -> bool:
    """Return True for a coordinate that can be drawn: degrees, metres or pixels."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain and -1e9 <= value <= 1e9  # type: ignore[operator]


def _links(content: Described, names: Mapping[str, str], section: GraphSpec) -> Iterator[Edge]:
    """Yield the links, in the order of their first edges."""
    ends = [
        (_end(edge, i, "source", names), _end(edge, i, "target", names))
        for i, edge in enumerate(content.edges)
    ]
    back: dict[tuple[str, str], int] = {}
    for i, pair in enumerate(ends):
        if pair[0] == pair[1]:
            raise ValueError(
                f"has an edge from {pair[0]} to itself, which no packet takes: take it out"
            )
        if content.directed[i]:
            if pair in back:
                raise ValueError(
                    f"has two edges from {pair[0]} to {pair[1]}, and it is open which edge back "
                    "belongs to which: leave one"
                )
            back[pair] = i
    for i, (one, other) in enumerate(ends):
        there = _shape(content.edges[i], (one, other), section)
        if not content.directed[i]:
            yield Edge(one, other, there, there)
        elif (other, one) not in back:
            raise ValueError(
                f"has an edge from {one} to {other} and none back, and a link has two directions: add "
                f"the edge from {other} to {one}, or make the graph undirected "
                '(edgedefault="undirected", "directed": false)'
            )
        elif back[other, one] > i:
            yield Edge(
                one, other, there, _shape(content.edges[back[other, one]], (other, one), section)
            )


def _end(edge: Attributes, number: int, key: str, names: Mapping[str, str]) -> str:
    end = _id_of(edge, number, "edge", key)
    if end not in names:
        raise ValueError(f"has an edge that leads to {_shown(end)}, which is no node")
    return names[end]


def _shape(edge: Attributes, ends: tuple[str, str], section: GraphSpec) -> Shape:
    """Return the shape that an edge and the section give a direction of a link, or both."""
    one, other = ends

    def said(key: str, parse: Callable[[object], Any], unit: str = "") -> Any:
        value = edge.get(key)
        if value is None:
            return None
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        try:
            return parse(f"{value}{unit}" if plain else value)
        except ValueError as error:
            raise ValueError(
                f"gives the edge from {one} to {other} a wrong {key}: {error}"
            ) from error

    rate, delay = said("rate", parse_limit), said("delay", parse_delay, " s")
    jitter, loss = said("jitter", parse_delay, " s"), said("loss", parse_percentage)
    queue = said("queue", parse_queue)
    if delay is None and section.delay is None:
        delay = said("dist", _parse_length)
    rate = _first(rate, section.rate, UNLIMITED)
    shape = Shape(
        None if rate == UNLIMITED else rate,
        _first(delay, section.delay, 0.0),
        _first(loss, section.loss, 0.0),
        jitter=_first(jitter, section.jitter, 0.0),
        queue=None if rate == UNLIMITED else _first(queue, section.queue, None),
    )
    if shape.jitter > shape.delay:
        raise ValueError(
            f"gives the edge from {one} to {other} more jitter than delay: give it less, or more delay"
        )
    return shape


def _parse_length(value: object) -> float:
    """Return the seconds that light takes for a length in kilometres."""
    try:
        seconds = float(str(value)) / KILOMETRES_PER_SECOND
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= 1e9:
        raise ValueError(f"{_shown(value)} is no length: write a number of kilometres")
    return seconds


def _first(*values: Any) -> Any:
    """Return the first value that is given; None if none is."""
    return next((value for value in values if value is not None), None)


def _check_that_it_is_connected(graph: RouterGraph) -> None:
    beside: dict[str, list[str]] = {router: [] for router in graph.routers}
    for edge in graph.edges:
        beside[edge.one].append(edge.other)
        beside[edge.other].append(edge.one)
    reached, waiting = {graph.routers[0]}, [graph.routers[0]]
    while waiting:
        for other in beside[waiting.pop()]:
            if other not in reached:
                reached.add(other)
                waiting.append(other)
    apart = [router for router in graph.routers if router not in reached]
    if apart:
        raise ValueError(f"is not connected: no way leads from {graph.routers[0]} to {apart[0]}")
