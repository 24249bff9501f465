"""``make bench-rules``: what each asynchronous rule costs the server per update, beside ASGD.

With 32 and with 200 workers, each with a gradient in memory of its own (the CNN's, 211,690 parameters),
the half of each rule is pushed to and pulled from in turn, so that what is kept for each worker is out
of the processor's caches as it is on a server. The rules take turns; a rule's figure is the median of
its rounds, and its ratio the median of the ratios to ASGD's in the same round. No message is encoded or
sent: an update is what ``push``, ``pull`` and ``outgoing`` of the half take, with what is computed or
copied for the worker that is sent parameters.
"""

import argparse
import statistics
import time
from collections.abc import Sequence

import numpy as np
import torch

from testbed.algorithms import ALGORITHMS, algorithm_named
from testbed.algorithms.interface import Conditions
from testbed.algorithms.rule import Rule
from testbed.learning.models import layout
from testbed.number_text import as_bytes
from testbed.updates import DenseUpdate

WORKERS = (32, 200)
BASELINE = "asgd"
NAMES = (BASELINE, *(name for name, one in ALGORITHMS.items() if issubclass(one, Rule)))


class Applied:
    """One rule's half, its workers' gradients, and where it is among them."""

    def __init__(self, name: str, gradients: Sequence[DenseUpdate]) -> None:
        workers = len(gradients)
        algorithm = algorithm_named(name)
        conditions = Conditions(1e-3, workers, 128, 10**9)
        options = algorithm.options_type.model_validate({"name": name})
        shape = layout("cnn")
        initial = np.random.default_rng(1).standard_normal(shape.total, np.float32)
        self._half = algorithm.server(options, shape, initial, conditions)
        self._gradients = gradients
        self._base = [self._pulled(worker) for worker in range(workers)]
        self._next = 0

    def _pulled(self, worker: int) -> int:
        version = self._half.pull(worker)
        assert version is not None
        self._half.outgoing(worker)
        return version

    def push(self, count: int) -> float:
        """Take ``count`` pushes, worker after worker; return the seconds of one."""
        began = time.perf_counter()
        for _ in range(count):
            worker = self._next
            self._half.push(worker, self._gradients[worker], self._base[worker])
            self._base[worker] = self._pulled(worker)
            self._next = (worker + 1) % len(self._gradients)
        return (time.perf_counter() - began) / count


def measure(workers: int, rounds: int, names: Sequence[str]) -> dict[str, list[float]]:
    """Return the seconds per update of each rule, in each round."""
    generator, size = np.random.default_rng(2), layout("cnn").total
    gradients = [
        DenseUpdate(1e-3 * generator.standard_normal(size, np.float32)) for _ in range(workers)
    ]
    rules = {name: Applied(name, gradients) for name in names}
    for one in rules.values():
        one.push(2 * workers)  # memory is touched, and momenta are there
    taken: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name, one in rules.items():
            taken[name].append(one.push(max(workers, 100)))
    return taken


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.rules", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    size = 4 * layout("cnn").total
    for workers in given.workers:
        taken = measure(workers, given.rounds, NAMES)
        print(f"{workers} workers, {given.rounds} rounds:  updates/s   × ASGD's   kept per worker")
        for name, seconds in taken.items():
            ratios = [a / b for a, b in zip(seconds, taken[BASELINE], strict=True)]
            options = algorithm_named(name).options_type.model_validate({"name": name})
            kept = algorithm_named(name).vectors_per_worker(options) * size
            print(
                f"  {name:16}{1 / statistics.median(seconds):20,.0f}"
                f"{statistics.median(ratios):12.2f}   {as_bytes(kept):>15}",
                flush=True,
            )


if __name__ == "__main__":
    main()
