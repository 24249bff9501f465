"""Random experiments of peers that die, for ``python -m bench.mixtures --peers``.

Each seed draws Ako or All-to-All with its options, the times, a network (links of their own, shared
by clusters, or a graph), and up to three kills for good, which may come at one moment.
"""

from typing import Any

import numpy as np

from bench.networks import with_network


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
        "algorithms": [algorithm],
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
    made = with_network(made, seed, one("star", "star", "clusters", "graph"))
    return made | {"network": {k: v for k, v in made["network"].items() if k != "server"}}
