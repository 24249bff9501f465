"""The knee rule: the learning rate of each k and mini-batch, found by a sweep over rates.

The rule (paper 004, §4, after Smith 2017): train for a few updates at each of several rising rates; the
knee is the rate from which on a larger one gains little, or loses. Here it is the smallest rate whose
training loss, in the mean over the seeds, is at most ``WITHIN`` above the lowest of all rates.

``make dbw-knee`` runs the sweep and writes ``knee.json``, which the runs of Fig. 8 read.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from reproduction.measures import Lines
from testbed.errors import SpecError

FILE = Path(__file__).with_name("knee.json")
RATES = (0.02, 0.04, 0.08, 0.16, 0.32)
BATCHES = (16, 128, 500)
WAITED_FOR = (1, 6, 16)
WITHIN = 0.1


def knee(losses: Mapping[float, float]) -> float:
    """Return the knee.

    Args:
        losses: the loss by the learning rate; infinite or NaN after a divergence.
    """
    finite = {rate: loss for rate, loss in losses.items() if np.isfinite(loss)}
    lowest = min(finite.values())
    return min(rate for rate, loss in finite.items() if loss <= (1 + WITHIN) * lowest)


def found(lines: Lines, names: Mapping[tuple[int, int], Mapping[float, str]]) -> dict[str, float]:
    """Return the knees, by mini-batch and k as ``500/16``, of those whose runs are all there.

    Args:
        names: by mini-batch and k the names of the lines, by their rates.
    """
    knees = {}
    for (batch, k), by_rate in names.items():
        losses = {rate: lines[name].last("training_loss") for rate, name in by_rate.items()}
        if all(losses.values()):
            means = {rate: float(np.mean(list(one.values()))) for rate, one in losses.items()}
            knees[f"{batch}/{k}"] = knee(means)
    return knees


def known(batch: int, k: int) -> bool:
    """Return True if ``knee.json`` has the learning rate of a mini-batch and k."""
    return f"{batch}/{k}" in _found()


def rate(batch: int, k: int) -> float:
    """Return the learning rate of a mini-batch and k in ``knee.json``.

    Raises:
        SpecError: it has not been found yet.
    """
    if not known(batch, k):
        raise SpecError(
            f"{FILE} has no learning rate of B = {batch} and k = {k}: run `make dbw-knee` first"
        )
    return _found()[f"{batch}/{k}"]


def _found() -> dict[str, float]:
    knees: dict[str, float] = json.loads(FILE.read_text(encoding="utf-8"))
    return knees
