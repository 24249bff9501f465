"""Random faults against peers, for ``python -m bench.chaos --peers``, and what must hold of such a run.

Each seed draws Ako or All-to-All with its options, the clock, a network, and two to five faults: kills,
for good or for a time, and freezes, outages, partitions and slow peers that pass. No peer is frozen or
cut off for good.
"""

from pathlib import Path
from typing import Any

import numpy as np

from bench.networks import with_network
from testbed.results.reading.recorded_faults import read_faults
from testbed.run_endings import is_complete

PEER_ALGORITHMS = ("ako", "all-to-all")


def experiment_of_peers(seed: int, peers: int, updates: int) -> dict[str, Any]:
    """Draw the experiment of a seed, with the keys of an experiment file."""
    draw = np.random.default_rng([2020, seed])

    def one(*options: Any) -> Any:
        return options[int(draw.integers(len(options)))]

    algorithm = one(
        {"name": "ako", "partitions": one(2, 5), "staleness_bound": one(0, 3)},
        {"name": "ako", "partitions": 3, "ratio": 0.1},
        {"name": "all-to-all", "staleness_bound": one(None, 1)},
    )
    evaluated = int(draw.integers(peers))
    made: dict[str, Any] = {
        "name": f"chaos-peers-{seed}",
        "seed": seed,
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": updates, "learning_rate": 0.002},
        "clock": one("wall", "virtual"),
        "algorithms": [algorithm],
        "encoding": one("plain", "compact", "compact-16"),
        "devices": {"workers": peers},
        "network": one({}, {"uplink": "100Mbit", "downlink": "200Mbit"}),
        "compute": {"distribution": one("uniform", "exponential"), "mean": "150ms"},
        "evaluation": {"every": 50, "images": 100, "peer": evaluated},
        "faults": [_fault(draw, peers, evaluated) for _ in range(int(draw.integers(2, 6)))],
    }
    _let_come_back(made, seed)
    kind = "star" if made["clock"] == "wall" else one("star", "clusters", "graph")
    made = with_network(made, seed, kind)
    return made | {"network": {k: v for k, v in made["network"].items() if k != "server"}}


def _let_come_back(made: dict[str, Any], seed: int) -> None:
    """Give two of three kills an end, and checkpoints; the draws are from a stream of their own."""
    draw = np.random.default_rng([2021, seed])
    kills = [fault for fault in made["faults"] if fault["how"] == "kill"]
    for fault in kills:
        if draw.random() < 2 / 3:
            fault["lasting"] = f"{draw.uniform(0.1, 1):.3f}s"
            made["checkpoints"] = {"every": int(draw.integers(1, 6))}


def _fault(draw: np.random.Generator, peers: int, evaluated: int) -> dict[str, Any]:
    def one(*options: Any) -> Any:
        return options[int(draw.integers(len(options)))]

    how = one(
        *("freeze", "freeze", "kill", "stop-network", "partition"),
        {"kind": "slow", "factor": 3},
        {"kind": "slow", "uplink": "20Mbit"},
    )
    others = [i for i in range(peers) if i != evaluated]
    struck = sorted(set(draw.choice(others, 1 if how == "kill" else 3).tolist()))
    time = {"time": f"{draw.uniform(0.1, 1.5):.3f}s"}
    iteration = {"iteration": int(draw.integers(1, 60))}
    fault = {"who": {"devices": [f"worker-{i}" for i in struck]}, "how": how}
    if how == "kill":
        return fault | {"when": one(time, iteration)}
    when = one(time, iteration, {"mean_time": "2s"})
    return fault | {"when": when, "lasting": f"{draw.uniform(0.1, 1):.3f}s"}


def violations_among_peers(
    spec: dict[str, Any], directory: Path, summary: dict[str, Any], rows: dict[str, Any]
) -> list[str]:
    """Return the invariants that a run of peers violates.

    Args:
        spec: the experiment, as ``experiment_of_peers`` made it.
        directory: the run directory.
        summary: the run's summary.
        rows: the columns of its updates.
    """
    found, wanted = [], spec["training"]["updates"]
    if not is_complete(summary["ended"]) or summary["updates"] != wanted:
        found.append(f"{summary['ended']} after {summary['updates']} of {wanted} updates")
    if summary["traffic"]["reconciled"] is not True:
        found.append(f"not reconciled: {summary['traffic']['differences']}")
    if rows["iteration"].tolist() != list(range(1, summary["updates"] + 1)):
        found.append("a step is missing, or stands twice or at the wrong place")
    if spec["clock"] == "virtual":
        # A message is counted when it is sent, whether it arrives or not.
        told, of_rows = summary["ingress"]["payload_bytes"], int(rows["payload_bytes"].sum())
        if told != of_rows:
            found.append(f"payload: {told} told, {of_rows} in the rows")
    for kill in (one for one in read_faults(directory) if one.kind == "kill"):
        begin, end = kill.began.time, np.inf if kill.ended is None else kill.ended.time
        of_peer = rows["time"][rows["worker"] == int(kill.device.removeprefix("peer-"))]
        steps = int(np.sum((of_peer > begin) & (of_peer < end)))
        # By the wall clock a report may have been under way.
        if steps > (spec["clock"] == "wall"):
            found.append(f"{kill.device} took {steps} steps after it was killed, at {begin} s")
    return found
