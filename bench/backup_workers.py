"""``make bench-backup-workers``: what DBW costs the server per update, beside a gradient.

With 16 and with 200 workers the half of DBW takes the gradients of DBW's MNIST network, in the order
of exponential round trips, until it makes an update; the other workers report that they have finished.
So does plain synchronous SGD with a static k of half of the workers. Losses are random, and the noise
of the gradients changes, so that k does, and many rows of the fit (17) have samples. What DBW costs is
the time that its half takes per update, less what synchronous SGD takes for as many gradients; all of
it in processor time, on one thread.
"""

import argparse
import statistics
import time

import numpy as np
import torch

from testbed.algorithms import algorithm_named
from testbed.algorithms.interface import Conditions
from testbed.algorithms.synchronous_sgd import SynchronousServer
from testbed.learning.learner import Learner
from testbed.learning.models import initialise, layout
from testbed.updates import DenseUpdate

WORKERS = (16, 200)
BATCH = 500
MODEL = "cnn-5x5"
_NOISE = (0.0, 0.5, 2.0)
"""Lengths of a gradient's random part, as multiples of the common part: with 0 a small k is best."""
_EACH = 5
"""Updates with one level of noise."""


class Driven:
    """One half, and the workers' gradients that it is given."""

    def __init__(self, workers: int, options: dict[str, object]) -> None:
        self._random = np.random.default_rng(1)
        algorithm = algorithm_named(str(options["name"]))
        shape = layout(MODEL)
        initial = self._random.standard_normal(shape.total, np.float32)
        chosen = algorithm.options_type.model_validate(options)
        half = algorithm.server(chosen, shape, initial, Conditions(0.08, workers, BATCH, 10**9))
        assert isinstance(half, SynchronousServer)
        self._half = half
        direction = self._random.standard_normal(shape.total, np.float32)
        noise = self._random.standard_normal((workers, shape.total), np.float32)
        self._gradients = [
            [DenseUpdate(1e-2 * (direction + level * one)) for one in noise] for level in _NOISE
        ]
        self._workers, self._updates = workers, 0
        self._now = 0.0

    def update(self) -> tuple[float, int]:
        """Push until there is an update, and report the rest; return its seconds, and k."""
        gradients = self._gradients[self._updates // _EACH % len(_NOISE)]
        self._updates += 1
        arrivals = np.sort(self._random.exponential(size=self._workers)) + self._now
        losses = self._random.uniform(0.5, 1, len(arrivals))
        version, k = self._half.version, 0
        began = time.process_time()
        for worker, (gradient, at, loss) in enumerate(
            zip(gradients, arrivals, losses, strict=True)
        ):
            if self._half.version == version:
                self._half.push(worker, gradient, version, loss=float(loss), time=float(at))
                k, self._now = k + 1, float(at)
            else:
                self._half.finished(worker, version, time=float(at))
        return time.process_time() - began, k


def gradient_seconds(rounds: int) -> float:
    """Return the processor time of a gradient of the network, the median of the rounds."""
    learner, random = Learner(MODEL, BATCH), np.random.default_rng(2)
    learner.parameters[:] = initialise(MODEL, "torch", random)
    images = random.standard_normal((BATCH, 1, 28, 28), np.float32)
    labels = random.integers(0, 10, BATCH)
    taken = []
    for _ in range(rounds):
        began = time.process_time()
        learner.gradient(images, labels)
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.backup_workers", description=__doc__)
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    gradient = gradient_seconds(9)
    print(f"a gradient of {MODEL}, {BATCH} images: {1e3 * gradient:.1f} ms")
    for workers in given.workers:
        dbw = Driven(workers, {"name": "dbw"})
        static = Driven(workers, {"name": "sync-sgd", "wait_for": workers // 2})
        of_dbw = [dbw.update() for _ in range(given.updates)][5:]  # the solver is imported by then
        of_static = [static.update() for _ in range(given.updates)][5:]
        a_push = statistics.median(seconds for seconds, _ in of_static) / (workers // 2)
        more = statistics.median(seconds - k * a_push for seconds, k in of_dbw)
        k = [one for _, one in of_dbw]
        print(
            f"n = {workers}: {1e3 * more:.2f} ms per update, {more / gradient:.1%} of a gradient "
            f"(median of {len(k)}; k from {min(k)} to {max(k)}, {len(set(k))} different)",
            flush=True,
        )


if __name__ == "__main__":
    main()
