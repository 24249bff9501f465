"""Read GraphML: nodes and edges with their attributes, as the file has them.

What would change the meaning of a graph is refused and not left out: graphs inside nodes, hyperedges, a
second graph, an attribute of no declared type. Attributes of a key with a default have it where an
element says nothing. Ports only name a node's interfaces, and are not read. Of yEd's own elements the
labels of nodes are read.

Entities of the document's own are refused, since a few lines of them stand for gigabytes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeAlias
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

Attributes: TypeAlias = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Described:
    """The nodes and edges of a file, whose values nobody has checked.

    Attributes:
        nodes: each has an ``id``, if the file gives it one.
        edges: each has a ``source`` and a ``target``, if the file gives them.
        directed: True for each edge that leads one way only.
    """

    nodes: tuple[Attributes, ...]
    edges: tuple[Attributes, ...]
    directed: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class _Key:
    """An attribute that the file declares.

    Attributes:
        name: None for yEd's drawings of nodes and edges.
        domain: the elements that may have it: ``node``, ``edge``, ``all`` or others.
        default: the text that elements have which say nothing; None if there is none.
    """

    name: str | None
    type: str
    domain: str
    default: str | None


def _boolean(text: str) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}[text.casefold()]


_TYPES: Mapping[str, Callable[[str], object]] = {
    "boolean": _boolean,
    **dict.fromkeys(("int", "integer", "long", "short"), int),
    **dict.fromkeys(("float", "double", "real"), float),
    "string": str,
}


def parse(content: bytes) -> Described:
    """Return the nodes and edges of a GraphML document.

    Raises:
        ValueError: it is no XML or no GraphML, or has what would be left out; the message is the end of
            a sentence about the file.
    """
    root = _tree(content)
    if root.tag != "graphml":
        raise ValueError(f"is no GraphML: its outermost element is {root.tag[:60]!r}")
    graphs = root.findall("graph")
    if len(graphs) != 1:
        raise ValueError(f"has {len(graphs)} graphs: leave one in it")
    (graph,) = graphs
    keys = dict(_keys(root))
    by_default = _is_directed(graph, "edgedefault")
    for element in graph.iter():
        if element.tag == "hyperedge":
            raise ValueError(
                "has a hyperedge, and a link has two ends: write it as a node and edges"
            )
        if element.tag == "graph" and element is not graph:
            raise ValueError("has a graph inside a node or an edge: write all nodes into one graph")
    nodes = graph.findall("node")
    edges = graph.findall("edge")
    return Described(
        tuple(_attributes(node, keys, i) for i, node in enumerate(nodes)),
        tuple(_attributes(edge, keys, i) for i, edge in enumerate(edges)),
        tuple(_is_directed(edge, "directed", by_default) for edge in edges),
    )


def _tree(content: bytes) -> Element:
    """Return the document's outermost element; names are without their namespaces."""
    builder = TreeBuilder()
    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True

    def start(tag: str, attributes: dict[str, str]) -> None:
        builder.start(tag.rpartition("}")[2], attributes)

    def end(tag: str) -> None:
        builder.end(tag.rpartition("}")[2])

    def refuse(*_: object) -> NoReturn:
        raise ValueError("declares an XML entity: write its text where it is used")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(content, True)
    except (expat.ExpatError, LookupError) as error:
        raise ValueError(f"cannot be read as XML: {error}") from error
    return builder.close()


def _keys(root: Element) -> Iterator[tuple[str, _Key]]:
    for one in root.findall("key"):
        name = one.get("attr.name")
        if name is None and one.get("yfiles.type") is None:
            raise ValueError(f"declares a key without a name (attr.name): {one.get('id', '')!r}")
        kind = one.get("attr.type", "string")
        if kind not in _TYPES:
            known = ", ".join(_TYPES)
            raise ValueError(f"has the attribute {name!r} of the type {kind!r}: use one of {known}")
        default = one.find("default")
        text = None if default is None else default.text or ""
        yield one.get("id", ""), _Key(name, kind, one.get("for", "all"), text)


def _is_directed(element: Element, key: str, otherwise: bool = False) -> bool:
    values = {"directed": True, "true": True, "undirected": False, "false": False}
    text = element.get(key)
    if text is None:
        return otherwise
    if text not in values:
        raise ValueError(
            f"has the {element.tag} attribute {key}={text[:60]!r}, which means nothing"
        )
    return values[text]


def _attributes(element: Element, keys: Mapping[str, _Key], number: int) -> Attributes:
    """Return an element's attributes: those of XML that GraphML has, and its data."""
    where = f"{element.tag} {element.get('id', number)!r}"
    texts = {
        key: one.default
        for key, one in keys.items()
        if one.default is not None and one.name and one.domain in (element.tag, "all")
    }
    found: dict[str, object] = {}
    given = set()
    for data in element.findall("data"):
        key = data.get("key", "")
        if key not in keys:
            raise ValueError(f"gives {where} data of the key {key!r}, which it does not declare")
        if key in given:
            raise ValueError(f"gives {where} the attribute {keys[key].name!r} twice")
        given.add(key)
        if keys[key].name is not None:
            texts[key] = data.text or ""
        elif element.tag == "node" and (label := data.find(".//NodeLabel")) is not None:
            found["label"] = (label.text or "").strip()
    for key, text in texts.items():
        one = keys[key]
        try:
            found[str(one.name)] = _TYPES[one.type](text)
        except (ValueError, KeyError) as error:
            raise ValueError(
                f"gives {where} the {one.name} {text[:60]!r}, which is no {one.type}"
            ) from error
    ends = ("id",) if element.tag == "node" else ("source", "target")
    return found | {end: element.attrib[end] for end in ends if end in element.attrib}
