"""Networks as Mermaid: the devices of the SVG, links between nodes that are there, and no markup."""

import re
from dataclasses import replace

import pytest

from testbed.drawing.drawn_network import Picture
from testbed.drawing.mermaid import mermaid
from testbed.errors import TestbedError
from tests.drawing.pictures import clusters, grid, star

NODE = re.compile(r'  (n\d+)(?:\[\[|\[|\()("[^"]*")(?:\]\]|\]|\))')
LINK = re.compile(r'  (n\d+) ---(?:\|"([^"]*)"\|)? (n\d+)')
STYLE = re.compile(r"  linkStyle (\d+) stroke:#\w+,stroke-width:3px")


def read(picture: Picture) -> tuple[dict[str, str], list[re.Match[str]]]:
    """Return the nodes and links of a picture's flowchart, each line of which must be understood."""
    before, title, after, kind, *lines = mermaid(picture).splitlines()
    assert (before, after, kind) == ("---", "---", "flowchart LR") and title.startswith("title: ")
    nodes, links = {}, []
    for line in lines:
        if node := NODE.fullmatch(line):
            nodes[node[1]] = node[2].strip('"')
        elif link := LINK.fullmatch(line):
            links.append(link)
        elif style := STYLE.fullmatch(line):
            assert int(style[1]) == len(links) - 1
        else:
            assert line.startswith("  %% "), line
    assert {end for link in links for end in (link[1], link[3])} == set(nodes)
    return nodes, links


def test_few_workers_are_drawn_one_by_one_and_many_as_one() -> None:
    nodes, links = read(star(10))
    assert sorted(nodes.values()) == sorted(
        ["core", "server", "evaluator", *(f"worker-{i}" for i in range(10))]
    )
    assert links[2][2] == "↑ 10 Mbit/s, 20 ms<br/>↓ 50 Mbit/s"
    nodes, links = read(star(500))
    assert list(nodes.values())[3:] == ["500 workers<br/>worker-0 to worker-499"]
    assert links[2][2] == "↑ each 10 Mbit/s, 20 ms<br/>↓ each 50 Mbit/s"


def test_bottlenecks_are_marked_and_clusters_that_are_alike_are_one() -> None:
    assert mermaid(clusters(3, 20)).count("linkStyle") == 3
    nodes, _ = read(clusters(40, 3, alike=True))
    assert "40 routers<br/>cluster-0 to cluster-39" in nodes.values() and len(nodes) == 5


def test_a_graph_has_its_routers_and_their_devices() -> None:
    nodes, links = read(grid(3, 3, positions=True))
    assert set(nodes.values()) >= {"r0-0<br/>1 device", "r2-2, with the server", "r1-1"}
    assert (len(nodes), len(links)) == (9, 12) and all(link[2] for link in links)
    assert not any(link[2] for link in read(grid(7, 7, positions=False))[1])
    with pytest.raises(TestbedError, match=r"has 760 links to draw, and Mermaid takes 500"):
        mermaid(grid(20, 20, positions=False))


def test_names_are_text_and_never_markup() -> None:
    picture = clusters(2, 2)
    name = '<b>"#35;`\n| end'
    wires = [
        replace(
            wire,
            node=wire.node.replace("cluster-0", name),
            router=wire.router.replace("cluster-0", name),
        )
        for wire in picture.wires
    ]
    nodes, _ = read(replace(picture, wires=wires, title='"\n---', notes=["a\nb --> c"]))
    assert "#60;b#62;#34;#35;35;#96; | end" in nodes.values()
