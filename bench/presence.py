"""Draw devices that arrive, leave and return, for random experiments.

The draws are from a stream of their own: the rest of a seed's experiment does not change with them.
"""

from typing import Any

import numpy as np

from bench.networks import Experiment, draws_as_before

SHARE = 0.5
"""The part of the experiments in which devices arrive or leave."""


def with_presence(
    made: Experiment, seed: int, horizon: float, share: float = SHARE, *, needed: int = 1
) -> Experiment:
    """Return an experiment some of whose devices may arrive late, leave, and return.

    Some devices are there from the beginning to the end. Experiments of peers stay as they are, and
    those of co-located servers whose seeds draw as before (``networks.draws_as_before``).

    Args:
        made: the experiment, with its network.
        horizon: roughly how many seconds the run lasts by its clock.
        share: the part of the seeds that change anything.
        needed: the fewest devices that stay; with fewer than an update needs, it may take hours until
            as many are there together.
    """
    draw = np.random.default_rng([1717, seed])
    workers, servers = made["devices"]["workers"], made["devices"].get("placement")
    alone = servers == "co-located" and draws_as_before(made["seed"])
    if draw.random() >= share or alone or workers < 2:
        return made

    def law(least: float, most: float) -> Any:
        mean = f"{draw.uniform(least, most) * horizon:.3f}s"
        if draw.random() < 0.4:
            return mean
        return {"distribution": "exponential", "mean": mean}

    def some() -> dict[str, Any]:
        keys: dict[str, Any] = {}
        if draw.random() < 0.5:
            keys["arrives"] = law(0.05, 0.5)
        if not keys or draw.random() < 0.7:
            keys["leaves"] = law(0.15, 0.6)
            if draw.random() < 0.8:
                keys["returns"] = law(0.03, 0.3)
        return keys

    stay = max(needed, int(draw.integers(1, workers)))
    classes = [{"name": "core", "number": stay}]
    mobile = workers - stay
    if mobile <= 0:
        return made
    if mobile > 1 and draw.random() < 0.4:
        first = int(draw.integers(1, mobile))
        classes.append({"name": "early", "number": first, **some()})
        mobile -= first
    classes.append({"name": "mobile", "number": mobile, **some()})
    return made | {"devices": made["devices"] | {"classes": classes}}
