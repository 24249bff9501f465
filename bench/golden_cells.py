"""Simulations that cover every algorithm on every topology that carries it, with faults and without.

``make golden`` compares their results with those of earlier commits. ``make mixtures`` draws many
more, but only of a few algorithms.
"""

from collections.abc import Iterator
from typing import Any

from bench.networks import Experiment

_SMALL: Experiment = {
    "dataset": "digits",
    "model": "mlp",
    "clock": "virtual",
    "engine": "simulation",
    "training": {"updates": 60, "learning_rate": 0.02, "batch_size": 8},
    "devices": {"workers": 6},
    "network": {"uplink": "40mbit", "downlink": "60mbit", "delay": "3ms"},
    "compute": {"distribution": "cvb", "mean": "50ms", "machine_variation": 0.6},
    "waiting": {"distribution": "exponential", "mean": "50ms"},
    "evaluation": {"every": 20, "images": 50},
}
"""The keys that all experiments here share."""
_ALGORITHMS: dict[str, Experiment] = {
    "asgd": {"name": "asgd"},
    "comp-asgd": {"name": "comp-asgd", "ratio": 0.05},
    "adacomp": {"name": "adacomp", "ratio": 0.05, "error_feedback": True},
    "momentum-asgd": {"name": "momentum-asgd"},
    "nag-asgd": {"name": "nag-asgd"},
    "sa": {"name": "sa"},
    "sa-gradient": {"name": "sa-gradient"},
    "ga": {"name": "ga", "gap": "parameter"},
    "dana": {"name": "dana"},
    "dana-sa": {"name": "dana-sa"},
    "dana-ga": {"name": "dana-ga"},
    "adam": {"name": "adam", "learning_rate": 0.002},
    "adam-sa": {"name": "adam-sa", "learning_rate": 0.002},
    "adam-ga": {"name": "adam-ga", "learning_rate": 0.002},
    "dc-asgd": {"name": "dc-asgd", "learning_rate": 0.005},
    "downpour": {"name": "downpour", "push_every": 2, "fetch_every": 3},
    "sync-pull": {"name": "sync-sgd", "wait_for": 4},
    "sync-wait": {"name": "sync-sgd", "wait_for": 4, "protocol": "push-and-wait"},
    "sync-interrupt": {"name": "sync-sgd", "wait_for": 4, "protocol": "push-and-interrupt"},
    "dbw": {"name": "dbw"},
    "dbw-interrupt": {"name": "dbw", "gain": "k", "protocol": "push-and-interrupt"},
    "adasync": {"name": "adasync", "variant": "k-batch-async"},
    "hierarchical": {"name": "hierarchical", "wait_for": 2, "within": "300ms"},
    "hierarchical-async": {"name": "hierarchical", "server": "asynchronous", "ratio": 0.1},
    "all-to-all": {"name": "all-to-all", "learning_rate": 0.01, "staleness_bound": 2},
    "ako": {"name": "ako", "learning_rate": 0.01, "partitions": 3, "staleness_bound": 1},
}
_CLUSTERS: Experiment = {
    "server": {"uplink": "80mbit", "downlink": "50mbit", "delay": "1ms"},
    "clusters": [
        {"name": "campus", "share": "50%", "uplink": "80mbit", "downlink": "150mbit"},
        {"name": "village", "share": "50%", "uplink": "20mbit", "downlink": "50mbit"},
    ],
}
_CLUSTERS_OF_PEERS = {"clusters": _CLUSTERS["clusters"]}
_PASSING: list[Experiment] = [
    {"who": {"devices": ["worker-1"]}, "how": "freeze", "when": {"time": "200ms"}},
    {"who": {"devices": ["worker-2"]}, "how": "stop-network", "when": {"time": "300ms"}},
    {"who": {"devices": ["worker-3"]}, "how": "partition", "when": {"iteration": 20}},
    {
        "who": {"devices": ["worker-1"]},
        "how": {"kind": "slow", "factor": 3},
        "when": {"time": "0s"},
    },
    {"who": {"devices": ["worker-4"]}, "how": "kill", "when": {"iteration": 30}},
]
"""Faults of workers that pass after ``_LASTING``; the freeze and the slow one overlap."""
_LASTING = "250ms"
_FAULTS = [fault | {"lasting": _LASTING} for fault in _PASSING]
_SERVERS = ("asgd", "adacomp", "sa", "adam-ga", "downpour", "sync-pull", "sync-wait")
"""Algorithms on several servers."""
_CO_LOCATED = ("asgd", "comp-asgd", "sync-pull")
_FAULTY = ("adacomp", "dana-ga", "downpour", "sync-interrupt", "dbw", "hierarchical", "ako")
"""Algorithms whose workers are struck by ``_FAULTS``."""
_RESTORED = ("asgd", "sync-pull")
"""Algorithms whose server is killed and goes on from a checkpoint."""


def cells() -> Iterator[Experiment]:
    """Yield the experiments, each with the keys of an experiment file."""
    for name, algorithm in _ALGORITHMS.items():
        network = _network_of(name)
        yield _made("star", name, algorithm, network=network)
    for name in _SERVERS:
        yield _made("servers", name, network=_CLUSTERS, devices={"servers": 3})
    for name in _CO_LOCATED:
        devices = {"servers": 2, "placement": "co-located"}
        yield _made("co-located", name, network=_CLUSTERS_OF_PEERS, devices=devices)
    for name in _FAULTY:
        yield _made("faults", name, network=_network_of(name), faults=_FAULTS)
    yield _made("servers-faults", "sync-pull", faults=_FAULTS, devices={"servers": 2})
    for name in _RESTORED:
        kill = {"who": "server", "how": "kill", "when": {"iteration": 33}, "lasting": "100ms"}
        faults = [*_FAULTS[:2], kill]
        yield _made("restored", name, faults=faults, checkpoints={"every": 10})


def _network_of(name: str) -> Experiment:
    return _CLUSTERS if name.startswith("hierarchical") else {}


def _made(
    kind: str,
    name: str,
    algorithm: Experiment | None = None,
    network: Experiment | None = None,
    devices: Experiment | None = None,
    **others: Any,
) -> Experiment:
    """Return an experiment of its own name, with more keys of its network and its devices."""
    return _SMALL | {
        "name": f"{kind}-{name}",
        "algorithms": [algorithm or _ALGORITHMS[name]],
        "network": _SMALL["network"] | (network or {}),
        "devices": _SMALL["devices"] | (devices or {}),
        **others,
    }
