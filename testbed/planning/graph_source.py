"""Graphs of routers, read from GraphML, from JSON, or from the package topohub.

JSON is networkx's node-link format: ``nodes`` with an ``id`` and, maybe, a ``name``; ``edges`` (or
``links``) with ``source`` and ``target``. An edge may say its ``rate``, its ``delay`` or its length in
kilometres (``dist``), its ``jitter``, its ``loss`` and its ``queue``: as numbers in bit/s, seconds,
kilometres, shares and bytes, or with units as in an experiment file. Attributes of GraphML have the
same names.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.errors import SpecError
from testbed.experiment.sections.directions import SMALLEST_QUEUE, parse_queue
from testbed.experiment.sections.graph import GraphSpec
from testbed.experiment.units import UNLIMITED, parse_duration, parse_limit, parse_percentage
from testbed.network.links import CORE, Shape

KILOMETRES_PER_SECOND = 200_000.0
"""The speed of light in a fibre: two thirds of that in vacuum."""

_COORDINATES = (("Longitude", "Latitude"), ("lon", "lat"), ("x", "y"))
"""Attributes of nodes that say where they are: Topology Zoo's, and others'."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A link between two routers, alike in both directions."""

    one: str
    other: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class Graph:
    """Routers by their names, and the links between them.

    Attributes:
        positions: of the routers, x to the east and y to the north; empty if not all are known.
    """

    routers: tuple[str, ...]
    edges: tuple[Edge, ...]
    positions: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def read(section: GraphSpec) -> Graph:
    """Read the graph of an experiment.

    Raises:
        SpecError: it cannot be read, is empty or not connected, or says something that is no quantity.
    """
    content = _of_topohub(section.topohub) if section.topohub else _of_file(str(section.file))
    nodes = list(content.get("nodes", ()))
    edges = list(content.get("edges", content.get("links", ())))
    if not nodes:
        raise SpecError(f"network.graph: {section.source} has no nodes")
    names = _names(nodes)
    if CORE in names.values():
        raise SpecError(
            f"network.graph: a node of {section.source} is called '{CORE}', as the router beside the "
            "server is: rename it"
        )
    found = Graph(
        tuple(names[_key(node, "id")] for node in nodes),
        tuple(_edge(edge, names, section) for edge in edges),
        _positions(nodes, names),
    )
    _check_that_it_is_connected(found, section)
    return found


def _of_topohub(key: str) -> Mapping[str, Any]:
    try:
        import topohub  # type: ignore[import-untyped]
    except ImportError as error:
        raise SpecError(
            "network.graph.topohub: the package topohub is not installed: `pip install topohub`"
        ) from error
    try:
        found: Mapping[str, Any] = topohub.get(key)
    except (KeyError, OSError, ValueError) as error:
        raise SpecError(
            f"network.graph.topohub: there is no topology '{key}' in the package topohub; an example "
            "of its names is sndlib/germany50"
        ) from error
    return found


def _of_file(file: str) -> Mapping[str, Any]:
    path = Path(file)
    try:
        if path.suffix.casefold() == ".graphml":
            import networkx  # type: ignore[import-untyped]

            graph = networkx.read_graphml(path)
            found: Any = networkx.node_link_data(graph, edges="edges")
        else:
            found = json.loads(path.read_text(encoding="utf-8"))
    except Exception as error:  # whatever the parsers raise, it is the file's
        raise SpecError(f"network.graph.file: {file} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise SpecError(f"network.graph.file: {file} is no graph: it has no nodes and edges")
    return found


def _key(item: Any, key: str) -> str:
    if not isinstance(item, dict) or key not in item:
        raise SpecError(f"network.graph: a node or an edge has no '{key}': {str(item)[:80]}")
    return str(item[key])


def _names(nodes: Iterable[Any]) -> dict[str, str]:
    """Return the routers' names by the nodes' ids: the nodes' own names, where all of them differ."""
    ids = [_key(node, "id") for node in nodes]
    own = [
        str(node.get("name", node.get("label", key))) for node, key in zip(nodes, ids, strict=True)
    ]
    for wanted in (own, ids):
        names = [re.sub(r"[^\w.-]+", "-", one)[:64] for one in wanted]
        if len(set(names)) == len(names):
            return dict(zip(ids, names, strict=True))
    raise SpecError("network.graph: two nodes have the same id: give each its own")


def _positions(nodes: Iterable[Any], names: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    """Return where the routers are, as ``pos`` of topohub or attributes of other sources say."""
    found = {}
    for node in nodes:
        pairs = [node.get("pos")] + [[node.get(x), node.get(y)] for x, y in _COORDINATES]
        for pair in pairs:
            if (
                isinstance(pair, list | tuple)
                and len(pair) == 2
                and all(isinstance(one, int | float) and math.isfinite(one) for one in pair)
            ):
                found[names[_key(node, "id")]] = (float(pair[0]), float(pair[1]))
                break
    return found if len(found) == len(names) else {}


def _edge(edge: Any, names: Mapping[str, str], section: GraphSpec) -> Edge:
    ends = [_key(edge, key) for key in ("source", "target")]
    for end in ends:
        if end not in names:
            raise SpecError(f"network.graph: an edge leads to '{end[:80]}', which is no node")
    one, other = (names[end] for end in ends)

    def said(key: str, parse: Any) -> Any:
        value = edge.get(key)
        if value is None or isinstance(value, int | float):
            return value
        try:
            return parse(value)
        except ValueError as error:
            raise SpecError(
                f"network.graph: {key} of the link {one} to {other}: {error}"
            ) from error

    rate, delay = said("rate", parse_limit), said("delay", parse_duration)
    jitter, loss = said("jitter", parse_duration), said("loss", parse_percentage)
    queue = said("queue", parse_queue)
    if delay is None and section.delay is None and edge.get("dist") is not None:
        delay = float(edge["dist"]) / KILOMETRES_PER_SECOND
    delay = float(_first(delay, section.delay, 0.0))
    rate = _first(rate, section.rate, UNLIMITED)
    shape = Shape(
        None if rate == UNLIMITED else int(rate),
        delay,
        float(_first(loss, section.loss, 0.0)),
        jitter=float(_first(jitter, section.jitter, 0.0)),
        queue=None if rate == UNLIMITED else _first(queue, section.queue, None),
    )
    if wrong := _impossible(shape):
        raise SpecError(f"network.graph: the link {one} to {other} has {wrong}")
    return Edge(one, other, shape)


def _first(*values: Any) -> Any:
    """Return the first value that is given; None if none is."""
    return next((value for value in values if value is not None), None)


def _impossible(shape: Shape) -> str | None:
    if shape.rate == 0:
        return "a rate of 0, and nothing would pass: take the link out of the graph"
    if (shape.rate is not None and shape.rate < 8) or shape.delay < 0:
        return "a rate below 8 bit/s or a negative delay"
    if not 0 <= shape.jitter <= shape.delay:
        return "more jitter than delay: give it less, or more delay"
    if not 0 <= shape.loss < 1 or (shape.queue is not None and shape.queue < SMALLEST_QUEUE):
        return f"a loss that is no share below 1, or a queue shorter than {SMALLEST_QUEUE} bytes"
    return None


def _check_that_it_is_connected(graph: Graph, section: GraphSpec) -> None:
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
        raise SpecError(
            f"network.graph: {section.source} is not connected: no way leads from "
            f"{graph.routers[0]} to {apart[0]}"
        )
