"""Random experiments of peers with faults, for ``python -m bench.mixtures --peers``.

Each seed draws Ako or All-to-All with its options, the times, a network (links of their own, shared
by clusters, or a graph), up to three kills, which may come at one moment and be for good or for a time,
and up to four freezes, outages and slow links that overlap with them.
"""

from typing import Any

import numpy as np

from bench.networks import with_network

_WITHOUT_QUEUE = 200
"""The last of the seeds whose peers have the default send queue."""


def _passing(
    seed: int, peers: int, evaluated: int, updates: int, horizon: float
) -> list[dict[str, Any]]:
    """Draw up to four faults that pass, of few peers, so that they overlap.

    They have a stream of their own: the rest of a seed's experiment does not change with them.
    """
    draw = np.random.default_rng([1819, seed])

    def one(*options: Any) -> Any:
        return options[int(draw.integers(len(options)))]

    def fault() -> dict[str, Any]:
        rate = one("500kbit", "5mbit", "20mbit")
        how = one(
            *("freeze", "freeze", "stop-network", "stop-network", "partition"),
            *({"kind": "slow", "factor": one(0.5, 4)}, {"kind": "slow", "uplink": rate}),
            {"kind": "slow", "downlink": rate, "factor": 2},
        )
        able = [
            i for i in range(peers) if isinstance(how, dict) or how == "freeze" or i != evaluated
        ]
        struck = sorted(set(draw.choice(able, 2).tolist()))
        when = one(
            {"time": f"{draw.uniform(0.02, 0.7) * horizon:.3f}s"},
            {"time": f"{draw.uniform(0.02, 0.7) * horizon:.3f}s"},
            {"iteration": int(draw.integers(1, updates * 3 // 4))},
            {"mean_time": f"{draw.uniform(0.2, 0.6) * horizon:.3f}s"},
        )
        lasting = f"{draw.uniform(0.02, 0.4) * horizon:.3f}s"
        who = {"devices": [f"worker-{i}" for i in struck]}
        return {"who": who, "how": how, "when": when, "lasting": lasting}

    return [fault() for _ in range(int(draw.integers(5)))]


def _suspect_after(seed: int, horizon: float) -> str | None:
    """Draw the time after which silent peers are suspected, from a stream of its own."""
    draw = np.random.default_rng([1820, seed])
    return None if draw.random() < 0.3 else f"{draw.uniform(0.03, 0.2) * horizon:.3f}s"


def _let_come_back(made: dict[str, Any], seed: int, horizon: float) -> None:
    """Give two of three kills an end, and half of those experiments checkpoints.

    The draws are from a stream of their own.
    """
    draw = np.random.default_rng([1821, seed])
    for fault in made["faults"]:
        if draw.random() < 2 / 3:
            fault["lasting"] = f"{draw.uniform(0.02, 0.5) * horizon:.3f}s"
    if draw.random() < 0.5 and any("lasting" in fault for fault in made["faults"]):
        made["checkpoints"] = {"every": int(draw.integers(1, 6))}


def _with_queue(algorithm: dict[str, Any], seed: int) -> dict[str, Any]:
    """Draw a send queue, from a stream of its own, for seeds that `make golden` does not have."""
    if seed <= _WITHOUT_QUEUE:
        return algorithm
    drawn = np.random.default_rng([1822, seed]).integers(4)
    return algorithm | {"send_queue": (1, 2, 5, "unlimited")[int(drawn)]}


def of_peers(seed: int) -> dict[str, Any]:
    """Draw the experiment of a seed, with the keys of an experiment file."""
    draw = np.random.default_rng([1818, seed])

    def one(*options: Any) -> Any:
        return options[int(draw.integers(len(options)))]

    peers, updates = int(draw.integers(2, 8)), int(draw.integers(60, 160))
    mean = one(10, 30, 80)
    horizon = updates * mean / 1000 / peers
    algorithm: dict[str, Any] = {"name": "all-to-all", "staleness_bound": one(None, 0, 3)}
    if draw.random() < 0.75:
        algorithm = {
            "name": "ako",
            "partitions": one(None, 1, 2, 3, 7),
            "staleness_bound": one(None, 0, 0, 2),
            "accumulation": bool(draw.random() < 0.8),
            "ratio": one(None, None, 0.05),
        }
    evaluated = int(draw.integers(peers))
    others = [f"worker-{i}" for i in range(peers) if i != evaluated]
    moments = (
        {"time": f"{draw.uniform(0.02, 0.9) * horizon:.3f}s"},
        {"iteration": int(draw.integers(1, updates))},
        {"mean_time": f"{draw.uniform(0.3, 2) * horizon:.3f}s"},
    )
    made: dict[str, Any] = {
        "name": f"peers-{seed}",
        "seed": seed,
        "dataset": "digits",
        "model": "mlp",
        "clock": "virtual",
        "training": {"updates": updates, "batch_size": 8, "learning_rate": 0.005},
        "algorithms": [_with_queue(algorithm, seed)],
        "encoding": one("compact", "plain", "compact-16"),
        "devices": {"workers": peers},
        "network": one(
            {"uplink": "100mbit"},
            {"uplink": "50mbit", "downlink": "60mbit", "delay": "7ms"},
            {"downlink": "80mbit"},
        ),
        "compute": {"distribution": one("constant", "exponential"), "mean": f"{mean}ms"},
        "evaluation": {"every": 50, "images": 50, "peer": evaluated},
        "faults": [
            {
                "who": {"devices": sorted(set(draw.choice(others, 2).tolist()))},
                "how": "kill",
                "when": one(*moments),
            }
            for _ in range(int(draw.integers(4)))
        ],
    }
    _let_come_back(made, seed, horizon)
    made = with_network(made, seed, one("star", "star", "clusters", "graph"))
    made["faults"] += _passing(seed, peers, evaluated, updates, horizon)
    made["devices"] |= {"suspect_after": _suspect_after(seed, horizon)}
    return made | {"network": {k: v for k, v in made["network"].items() if k != "server"}}
