"""Graphs from files on real links: each direction has the rate that its own edge says."""

import itertools
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from testbed.experiment.load import load
from testbed.network import building
from testbed.network.links import CORE
from testbed.nodes.linux import inside_network, new_network, own_network
from testbed.planning.plan import plan
from tests.planning.test_graph_source import BASE
from tests.traffic.isolation import isolated, real

pytestmark = pytest.mark.exercises("namespaces")


def drawn(seed: int) -> dict[str, Any]:
    """Draw a graph of what may be accepted: directed or with parallel edges, and with odd names."""
    draw = random.Random(seed)
    count, directed = draw.randint(2, 7), seed % 2 == 0
    names = ["", "Bad Ems", "a/b", "\x1b[31m", "n" * 70, "Köln", "server-room"]
    nodes = [{"id": i - 3, "name": names[i]} for i in range(count)]
    pairs = [(draw.randrange(i), i) for i in range(1, count)]
    more = set(draw.sample(list(itertools.combinations(range(count), 2)), min(3, count - 1)))
    pairs += sorted(more - set(pairs)) if directed else sorted(more)
    edges = []
    for one, other in pairs:
        for ends in ((one, other), (other, one))[: 1 + directed]:
            rate = draw.choice([None, 10_000, 10**6, "33mbit", 2.5e9])
            edges.append({"source": ends[0] - 3, "target": ends[1] - 3, "rate": rate})
    draw.shuffle(edges)
    return {"directed": directed, "nodes": nodes, "edges": edges}


@real
@pytest.mark.parametrize("seed", range(8))
def test_each_direction_has_the_rate_of_its_edge(tmp_path: Path, seed: int) -> None:
    graph = drawn(seed)
    (tmp_path / "graph.json").write_text(json.dumps(graph))
    text = BASE.replace("clock: virtual", "clock: wall") + "network: {graph: {file: graph.json}}\n"
    (tmp_path / "spec.yaml").write_text(text)
    (planned,) = plan(load(tmp_path / "spec.yaml"))
    network = planned.network
    numbers = {name: i - 3 for i, name in enumerate(network.others)}
    asked = sorted(
        (ends, _bits(edge["rate"]))
        for edge in graph["edges"]
        for ends in (
            [(edge["source"], edge["target"])]
            if graph["directed"]
            else [(edge["source"], edge["target"]), (edge["target"], edge["source"])]
        )
    )

    def body() -> None:
        names = [*network.devices, *network.routers]
        namespaces = {name: new_network() for name in names if name != CORE}
        building.build(network, namespaces)
        namespaces[CORE] = own_network()
        found = []
        for link in network.links:
            if link.node not in numbers or link.router not in numbers:
                continue
            ends = numbers[link.node], numbers[link.router]
            for sender, pair in ((link.node, ends), (link.router, ends[::-1])):
                with inside_network(namespaces[sender]):
                    command = ["tc", "class", "show", "dev", link.interface]
                    shown = subprocess.run(command, capture_output=True, text=True, check=True)
                words = shown.stdout.split()
                found.append((pair, words[words.index("rate") + 1]))
        assert sorted(found) == asked

    isolated(body)


def _bits(rate: Any) -> str:
    """Return a rate as tc prints it: in whole bytes per second."""
    return {None: "1Tbit", 10_000: "10Kbit", 10**6: "1Mbit"}.get(
        rate, "33Mbit" if rate == "33mbit" else "2500Mbit"
    )
