"""Draw the network of a random experiment: private or shared links, any graph, servers, aggregators.

The network is drawn from a stream of its own, so that a seed's algorithm, devices and faults are the
same whatever its network is, but where a kind says otherwise. Each entry of ``KINDS`` changes an
experiment as an experiment file would; another kind of network is another entry.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from testbed.units import parse_rate

Experiment: TypeAlias = dict[str, Any]
"""The keys of an experiment file."""
GRAPH_FILE = "{name}.json"
"""The graph of an experiment, by its name; ``write_graph`` makes it."""
FOUND = (2062,)
"""Late seeds of mixtures of workers that have failed once."""
_LAST_AS_BEFORE = 300
_RATES = {"wall": ("200mbit", "500mbit", "1gbit"), "virtual": ("20mbit", "50mbit", "200mbit")}
"""The rates of shared links, by the clock."""
_TOPOLOGIES = ("sndlib/abilene", "sndlib/nobel-germany", "sndlib/germany50")


def with_network(made: Experiment, seed: int, kind: str | None = None) -> Experiment:
    """Return an experiment with a network that its seed draws.

    Under the wall clock no link has a delay (netem may be missing, and a seed means the same
    everywhere), and rates are those with which fifty full pushes take less than a second.

    Args:
        made: the experiment, with the network of a star.
        kind: one of ``KINDS``; None to draw that, too.
    """
    draw = np.random.default_rng([1616, seed])
    drawn = list(KINDS)[int(draw.integers(len(KINDS)))]
    made = KINDS[kind or drawn](made, draw)
    if draws_as_before(seed):
        return made
    return _with_struck_aggregators(_of_several_servers(made, draw), draw)


def draws_as_before(seed: int) -> bool:
    """Return True of the seeds among which those of ``bench/golden.jsonl`` are.

    They draw neither several servers with aggregators, nor faults of aggregators or of machines' links,
    nor arrivals and departures beside servers, nor kills of servers whose workers remember something:
    what the file holds would be of other experiments.
    """
    return seed <= _LAST_AS_BEFORE or seed in FOUND


def write_graph(made: Experiment, folder: Path) -> Experiment:
    """Write the graph of an experiment, if it has one of its own; return it with the file's path."""
    graph = made["network"].get("graph", {})
    if "file" not in graph:
        return made
    draw = np.random.default_rng([1617, made["seed"]])
    path = folder / graph["file"]
    path.write_text(json.dumps(_graph(draw, made["clock"])), encoding="utf-8")
    return made | {"network": made["network"] | {"graph": graph | {"file": str(path)}}}


def round_seconds(made: Experiment, size: int) -> float:
    """Return the least seconds in which all workers pull and push once over the links that they share.

    Args:
        size: the bytes of a message.
    """
    network = made["network"]
    shared = [(network.get("server", {}), made["devices"]["workers"])]
    shared += [(cluster, cluster["number"]) for cluster in network.get("clusters", ())]
    rates = (
        [number / parse_rate(link[way]) for way in ("uplink", "downlink") if way in link]
        for link, number in shared
    )
    longest: float = max(map(sum, rates))
    return 8 * size * longest


def _star(made: Experiment, _draw: np.random.Generator) -> Experiment:
    return made


def _server(made: Experiment, draw: np.random.Generator) -> Experiment:
    """Give the server a link of its own, which may be slower than those of the workers together."""
    return _with(made, server=_link(made, draw))


def _clusters(made: Experiment, draw: np.random.Generator) -> Experiment:
    """Put devices behind routers; the server may have a link of its own besides."""
    workers = made["devices"]["workers"]
    count = int(draw.integers(1, min(5, workers + 1)))
    cuts = sorted(draw.permutation(np.arange(1, workers))[: count - 1].tolist())
    sizes = np.diff([0, *cuts, workers]).tolist()
    clusters = [
        {"name": f"cluster-{i}", "number": size} | _link(made, draw) for i, size in enumerate(sizes)
    ]
    if draw.random() < 0.4:
        made = _server(made, draw)
    return _with(made, clusters=clusters)


def _any_graph(made: Experiment, draw: np.random.Generator) -> Experiment:
    """Attach devices to a known topology, or to a graph that ``write_graph`` draws."""
    if draw.random() < 0.3:
        graph = {"topohub": one_of(draw, *_TOPOLOGIES)}
    else:
        graph = {"file": GRAPH_FILE.format(name=made["name"])}
    graph |= {
        "attach": one_of(draw, "random", "in-turn"),
        "rate": one_of(draw, *_RATES[made["clock"]]),
    }
    if made["clock"] == "wall":
        graph["delay"] = "0s"
    if draw.random() < 0.4:
        made = _server(made, draw)
    return _with(made, graph=graph)


def _servers(made: Experiment, draw: np.random.Generator) -> Experiment:
    """Cut the parameters among several servers, which may be behind shared links.

    Where the only server would be killed, one of them is.
    """
    servers = int(draw.integers(2, 5))
    made = _with_kills(made | {"devices": made["devices"] | {"servers": servers}}, draw)
    shared = (_star, _server, _clusters)[int(draw.integers(3))]
    return shared(made, draw)


def _co_located(made: Experiment, draw: np.random.Generator) -> Experiment:
    """Put several servers on the machines of workers, which may be behind shared links or in a graph.

    Under the wall clock the workers' own links get no rate: over 20 Mbit/s a server would send fifty
    workers its part for longer than it waits.
    """
    if draws_as_before(made["seed"]):
        made = made | {"faults": [rule for rule in made["faults"] if rule.get("who") == "server"]}
    if made["clock"] == "wall":
        made = made | {"network": {}}
    network = (_star, _clusters, _any_graph)[int(draw.integers(3))](made, draw)
    shared = {key: value for key, value in network["network"].items() if key != "server"}
    most = min(5, made["devices"]["workers"])
    devices = {"servers": int(draw.integers(2, most + 1)), "placement": "co-located"}
    made = network | {"network": shared, "devices": made["devices"] | devices}
    return _with_kills(made, draw)


def _hierarchical(made: Experiment, draw: np.random.Generator) -> Experiment:
    """Put an aggregator in each cluster; the algorithm is another one."""
    algorithm: dict[str, Any] = {"name": "hierarchical"}
    if draw.random() < 0.5:
        algorithm["ratio"] = 0.05
    if draw.random() < 0.5:
        algorithm["server"] = "asynchronous"
    if draw.random() < 0.3:
        algorithm |= one_of(draw, {"wait_for": 1}, {"within": "200ms"})
    training = made["training"]
    if "server" not in algorithm:  # each update takes a gradient of every device
        training = training | {"updates": min(training["updates"], 30)}
    made = made | {"algorithms": [algorithm], "training": training}
    return _clusters(_with_kills(made, draw), draw)


def _of_several_servers(made: Experiment, draw: np.random.Generator) -> Experiment:
    """Have the aggregators of every second experiment that has any call several servers."""
    if made["algorithms"][0]["name"] != "hierarchical" or draw.random() < 0.5:
        return made
    servers = int(draw.integers(2, 5))
    faults = _at_one_of(servers, made["faults"], draw)
    return made | {"devices": made["devices"] | {"servers": servers}, "faults": faults}


def _with_struck_aggregators(made: Experiment, draw: np.random.Generator) -> Experiment:
    """Have faults strike the aggregators of most experiments that have any, at the times of others.

    They are faults of the experiment's own, of which each second one strikes an aggregator as well.
    Only by the wall clock it may kill one.
    """
    if made["algorithms"][0]["name"] != "hierarchical":
        return made
    kills: tuple[str, ...] = ()
    rates: tuple[str, ...] = ("500kbit", "2mbit", "10mbit")
    if made["clock"] == "wall":
        # What a slower link has queued takes longer than a device waits for who comes back.
        kills, rates = ("kill", "kill"), ("20mbit", "50mbit", "200mbit")
    count = len(made["network"]["clusters"])
    found: list[dict[str, Any]] = []
    for fault in made["faults"]:
        how = one_of(draw, "freeze", "freeze", "stop-network", "partition", "slow", *kills)
        whose = sorted({int(one) for one in draw.integers(count, size=2)})
        rate = one_of(draw, *rates)
        if "probability" in fault["when"] or fault["who"] == "server" or draw.random() < 0.4:
            continue
        slower = {"kind": "slow", "uplink": rate} | one_of(draw, {}, {"downlink": rate})
        who = {"devices": [f"aggregator-{one}" for one in whose]}
        found.append(fault | {"who": who, "how": slower if how == "slow" else how})
    return made | {"faults": made["faults"] + found}


def _with_kills(made: Experiment, draw: np.random.Generator) -> Experiment:
    """Kill a server of some experiments more, and one of several instead of the only one."""
    servers = made["devices"].get("servers", 1)
    faults = list(made.get("faults", ()))
    may_remember = not draws_as_before(made["seed"])
    feedback = made["algorithms"][0].get("error_feedback")
    if draw.random() < 0.4 and (may_remember or not feedback):
        when = {"iteration": int(draw.integers(1, made["training"]["updates"]))}
        faults.append({"who": "server", "when": when, "how": "kill", "lasting": "100ms"})
        made = {"checkpoints": {"every": int(draw.integers(5, 40))}, **made}
    if servers > 1:
        faults = _at_one_of(servers, faults, draw)
    return made | {"faults": faults}


def _at_one_of(
    servers: int, faults: Sequence[dict[str, Any]], draw: np.random.Generator
) -> list[dict[str, Any]]:
    """Return faults of which those at the only server strike one of several instead."""
    return [
        fault | {"who": {"devices": [f"server-{int(draw.integers(servers))}"]}}
        if fault.get("who") == "server"
        else fault
        for fault in faults
    ]


KINDS: Mapping[str, Callable[[Experiment, np.random.Generator], Experiment]] = {
    "star": _star,
    "server": _server,
    "clusters": _clusters,
    "graph": _any_graph,
    "servers": _servers,
    "co-located": _co_located,
    "hierarchical": _hierarchical,
}


def network_kinds(made: Experiment) -> tuple[str, ...]:
    """Return the kinds that an experiment's network is a mixture of; none for a star."""
    devices = made["devices"]
    several = ("servers",) if devices.get("servers", 1) > 1 else ()
    several = ("co-located",) if devices.get("placement") == "co-located" else several
    if made["algorithms"][0]["name"] == "hierarchical":
        several = ("hierarchical",)
    return (*(kind for kind in KINDS if kind in made["network"]), *several)


def _with(made: Experiment, **network: Any) -> Experiment:
    return made | {"network": made["network"] | network}


def _link(made: Experiment, draw: np.random.Generator) -> dict[str, Any]:
    """Draw a shared link; it has a rate in one direction at least."""
    rates = _RATES[made["clock"]]
    link = {"uplink": one_of(draw, None, *rates), "downlink": one_of(draw, *rates)}
    if made["clock"] == "virtual":
        link["delay"] = one_of(draw, None, "2ms", "15ms")
    return {key: value for key, value in link.items() if value is not None}


def _graph(draw: np.random.Generator, clock: str) -> dict[str, Any]:
    """Draw a connected graph of 2 to 9 routers, in networkx's node-link format.

    Some of its links say no rate or delay. Some pairs of routers have two links, or one with two
    directions that differ.
    """
    count = int(draw.integers(2, 10))
    pairs = [(int(draw.integers(i)), i) for i in range(1, count)]  # each to an earlier one
    more = draw.integers(count, size=(int(draw.integers(count)), 2)).tolist()
    edges: list[dict[str, Any]] = []
    directed = bool(draw.integers(2))
    pairs += [(one, other) for one, other in more if one != other]
    if directed:
        pairs = list(dict.fromkeys((min(pair), max(pair)) for pair in pairs))
        pairs += [(other, one) for one, other in pairs]
    for one, other in pairs:
        edge = {"source": one, "target": other, "rate": one_of(draw, None, *_RATES[clock])}
        if clock == "virtual":
            edge["delay"] = one_of(draw, None, "1ms", "8ms")
        edges.append({key: value for key, value in edge.items() if value is not None})
    nodes = [{"id": i, "name": f"router-{i}"} for i in range(count)]
    return {"directed": directed, "nodes": nodes, "edges": edges}


def one_of(draw: np.random.Generator, *options: Any) -> Any:
    return options[int(draw.integers(len(options)))]
