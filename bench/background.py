"""Draw background traffic for random experiments.

The draws are from a stream of their own: the rest of a seed's experiment does not change with them.
"""

import numpy as np

from bench.networks import Experiment

_MOST = 4
"""The most flows; all together leave something of any link of ``bench.networks``, and of ours."""
_RATES = ("100kbit", "400kbit", "1mbit")


def with_background(made: Experiment, seed: int, *, served: bool = True) -> Experiment:
    """Return an experiment with one flow or more between its devices.

    Args:
        served: True if there is a server.
    """
    draw = np.random.default_rng([1919, seed])
    devices = made["devices"]
    servers, workers = devices.get("servers", 1), devices["workers"]
    names = [f"worker-{i}" for i in range(workers)]
    if served:
        names += ["server"] if servers == 1 else [f"server-{i}" for i in range(servers)]
    pairs = [
        (one, other)
        for one in names
        for other in names
        if one != other and one.rpartition("-")[2] != other.rpartition("-")[2]  # of one machine
    ]
    flows = []
    for _ in range(int(draw.integers(1, _MOST + 1))):
        one, other = pairs[int(draw.integers(len(pairs)))]
        law = str(draw.choice(["constant", "poisson", "on-off", "on-off"]))
        flow = {"from": one, "to": other, "rate": str(draw.choice(_RATES)), "law": law}
        if law == "on-off":
            on, off = (int(draw.integers(20, 2000)) for _ in range(2))
            flow |= {"rate": str(draw.choice(["1mbit", "8mbit", "30mbit"]))}
            flow |= {"on": f"{on}ms", "off": f"{off}ms"}
        flows.append(flow)
    return made | {"traffic_between": flows}
