"""Workers of random experiments that remember something from one computation to the next.

For ``bench.mixtures`` and ``bench.resumptions``: what they remember has to come back with the servers
from a checkpoint. Some experiments get another algorithm for it, or a stream of mini-batches, from a
stream of their own: the rest of a seed's experiment stays.
"""

import numpy as np

from bench.networks import Experiment, one_of

SHARE = 0.3
"""The part of the experiments whose workers are made to remember something."""
_ROUNDS = 25
"""The most updates of a run in which each is a round of local training."""


def with_memory(made: Experiment, seed: int, share: float = SHARE) -> Experiment:
    """Return an experiment, or with probability ``share`` one whose workers remember something."""
    draw = np.random.default_rng([2727, seed])
    if draw.random() >= share:
        return made

    feedback = {"ratio": 0.05, "error_feedback": True}
    (algorithm,) = made["algorithms"]
    if algorithm["name"] == "hierarchical":
        return made | {"algorithms": [algorithm | feedback]}
    protocol = one_of(draw, "pull", "push-and-wait", "push-and-interrupt")
    own = [
        {"name": one_of(draw, "adacomp", "comp-asgd"), **feedback},
        {"name": "sync-sgd", "protocol": protocol, **feedback},
        {"name": "comp-asgd", "ratio": 0.05, "selection": "random"},
        {
            "name": "downpour",
            "push_every": one_of(draw, 1, 2, 3),
            "fetch_every": one_of(draw, 2, 3, 6),
        },
        {"name": "easgd", "exchange_every": one_of(draw, 1, 4)},
    ]
    if made["devices"].get("servers", 1) > 1:
        return made | {"algorithms": [one_of(draw, *own)]}
    chosen = one_of(
        draw,
        *own,
        {"name": "fedavg", "local_steps": 3, "proximal": one_of(draw, None, 0.1)},
        "stream",
    )
    if chosen == "stream":
        return made | {"partition": "stream"}
    if chosen["name"] == "fedavg":
        training = made["training"]
        made = made | {"training": training | {"updates": min(_ROUNDS, training["updates"])}}
    return made | {"algorithms": [chosen]}
