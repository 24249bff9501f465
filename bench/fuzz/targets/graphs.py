"""Graphs in files: ``testbed.planning.graph_source.read``, which may raise ``SpecError``."""

import json
import math
from collections.abc import Sequence

from bench.fuzz.memory_file import MemoryFile
from testbed.errors import SpecError
from testbed.experiment.sections.graph import GraphSpec
from testbed.planning import graph_source

_FILE = MemoryFile("graph")
_SECTION = GraphSpec(file=str(_FILE.path))

TOKENS = tuple(
    text.encode()
    for text in (
        *("null", "true", "NaN", "-Infinity", "1e400", "1e-400", "[]", "{}", '""', "0", "-1"),
        *('"id"', '"name"', '"source"', '"edges"', '"links"', '"directed": true,', '"12 km"'),
        *('"rate": "5mbit",', '"dist": 7,', '"queue": 1e9,', '"core"', '"worker-0"', "\\ud800"),
        *("<node id='9'/>", "<edge source='0' target='1'/>", "<graph>", "</graph>", "<hyperedge/>"),
        *(
            "<data key='r'>",
            "</data>",
            "directed='true'",
            "&#0;",
            "&lt;",
            "<![CDATA[",
            "]]>",
            "<!--",
        ),
        *(
            '<!DOCTYPE a [<!ENTITY b "c">]>',
            "&b;",
            ' encoding="utf-16"',
            ' encoding="x"',
            "\0",
            "\x1b[",
        ),
    )
)
_GRAPHML = """<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="r" for="edge" attr.name="rate" attr.type="string"><default>1mbit</default></key>
<key id="d" for="edge" attr.name="delay" attr.type="double"/>
<key id="n" for="node" attr.name="name" attr.type="string"/>
<key id="x" for="node" attr.name="x" attr.type="int"/>
<key id="y" for="node" attr.name="y" attr.type="int"/>
<graph edgedefault="{}">
<node id="0"><data key="n">A</data><data key="x">1</data><data key="y">2</data></node>
<node id="1"><data key="n">B</data></node><node id="2"/>
<edge source="0" target="1"><data key="d">0.005</data></edge>
<edge source="1" target="0"><data key="r">5mbit</data></edge>
<edge source="1" target="2"/><edge source="2" target="1"/>
</graph></graphml>"""


def corpus() -> Sequence[bytes]:
    """Return a file of each kind."""
    nodes = [{"id": 0, "name": "A", "pos": [1, 2]}, {"id": [1, 2]}, {"id": "c", "label": "C d"}]
    ends = [(0, [1, 2]), ([1, 2], "c"), ("c", [1, 2]), ([1, 2], 0)]
    values: list[dict[str, object]] = [
        {"rate": 1e6, "delay": 0.01, "jitter": "1ms"},
        {"rate": "10mbit", "queue": 9000, "loss": "1%"},
        {"dist": 12.5},
        {},
    ]
    edges = [
        {"source": one, "target": other, **more}
        for (one, other), more in zip(ends, values, strict=True)
    ]
    files = [
        json.dumps({"directed": directed, "multigraph": True, "nodes": nodes, key: edges})
        for directed in (False, True)
        for key in ("edges", "links")
    ]
    files += [_GRAPHML.format(kind) for kind in ("directed", "undirected")]
    wide = (files[0], files[-1].replace("utf-8", "utf-16"))
    return [*(text.encode() for text in files), *(text.encode("utf-16") for text in wide)]


def check(data: bytes) -> bool:
    """Read a graph, and check that it could be built; a refusal is one printable line with the file."""
    _FILE.hold(data)
    try:
        found = graph_source.read(_SECTION)
    except SpecError as error:
        assert str(_SECTION.file) in str(error) and str(error).isprintable()
        return False
    assert len(set(found.routers)) == len(found.routers) and all(found.routers)
    assert all(len(name.encode()) <= graph_source.LONGEST_NAME for name in found.routers)
    for edge in found.edges:
        assert edge.one != edge.other and {edge.one, edge.other} <= set(found.routers)
        for shape in (edge.there, edge.back):
            assert shape.rate is None or (isinstance(shape.rate, int) and shape.rate >= 8)
            assert math.isfinite(shape.delay) and 0 <= shape.jitter <= shape.delay
            assert 0 <= shape.loss < 1 and (shape.queue is None or isinstance(shape.queue, int))
    return True
