"""``make bench-gamma-times``: paper 002's model of execution times, by the virtual clock alone.

Gradients take gamma-distributed times (Ali et al., ``distribution: cvb``), of machines that are alike
or differ by V_mach = 0.6, and nothing else takes any time. Printed are the share of tasks that take
more than 1.25 times the mean (the paper's Figure 3) and, against one machine of mean speed, how many
times as many gradients n workers make when each is an update (``momentum-asgd``) and when each update
waits for all (``sync-sgd``; Figure 12). In each run every worker makes about ``--tasks`` gradients, and
each figure is the mean over ``--seeds`` runs, whose heterogeneous machines are drawn anew.
"""

import argparse
import statistics
from collections.abc import Sequence
from typing import Any

from testbed.durations import Durations
from testbed.experiment.spec import Spec
from testbed.learning.data import datasets
from testbed.planning.plan import plan
from testbed.simulation.systems import system
from testbed.telemetry.records import UpdateRow
from testbed.training import computation

MEAN = 0.128
"""Seconds per gradient: the paper's 128 units."""
WORKERS = (1, 2, 4, 8, 16, 32, 64, 128)
VARIATIONS = {"homogeneous": 0.0, "heterogeneous": 0.6}
KINDS = ("momentum-asgd", "sync-sgd")


class Silent:
    """An observer that remembers only when the last update was made."""

    time = 0.0

    def row(self, row: UpdateRow, version: int) -> None:
        """Note when an update was made."""
        self.time = row.time

    def suspected(self, worker: int, silent: float, time: float, version: int) -> None:
        """Do nothing: no worker is silent."""

    def welcomed(self, worker: int, time: float, version: int) -> None:
        """Do nothing."""

    def diagnosed(self, values: Sequence[float], version: int) -> None:
        """Do nothing."""

    def evaluation_due(self) -> None:
        """Do nothing."""

    def fault(self, record: dict[str, Any]) -> None:
        """Do nothing: nothing fails."""


def compute(variation: float) -> dict[str, Any]:
    """Return the section ``compute`` of a resolved experiment file."""
    law = {"distribution": "cvb", "task_variation": 0.1, "machine_variation": variation}
    return law | {"mean": MEAN}


def rate(kind: str, workers: int, variation: float, tasks: int, seed: int) -> float:
    """Simulate one run; return its gradients per second of the virtual clock."""
    updates = tasks * workers if kind == "momentum-asgd" else tasks
    spec = {
        "name": "gamma-times",
        "seed": seed,
        "dataset": "digits",
        "model": "mlp",
        "partition": "same",
        "training": {"batch_size": 1, "learning_rate": 1e-4, "updates": updates},
        "algorithms": [kind],
        "devices": {"workers": workers},
        "engine": "simulation",
        "clock": "virtual",
        "compute": compute(variation) | {"mean": f"{MEAN}s"},
    }
    settings = plan(Spec.model_validate(spec))[0].settings
    dataset = datasets.load("digits", "standardised", None, seed)
    learner = computation.learner(settings, dataset.inputs)
    initial = computation.initial(settings, dataset.inputs)
    observer = Silent()
    system(settings)(settings, dataset, learner, initial, observer).clock.run()
    return tasks * workers / observer.time


def stragglers(variation: float, devices: int = 20_000) -> float:
    """Return the share of the devices' first tasks that take more than 1.25 times the mean."""
    durations = Durations.of(compute(variation), 1, "compute", devices)
    late = sum(durations.of_device(one).sample(0.0) > 1.25 * MEAN for one in range(devices))
    return late / devices


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.gamma_times", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS)
    given = parser.parse_args()
    for name, variation in VARIATIONS.items():
        print(f"{name}: {stragglers(variation):.1%} of tasks take more than 1.25 × the mean")
        one = 1 / MEAN
        print("  workers   asynchronous   synchronous   asynchronous ÷ synchronous")
        for workers in given.workers:
            rates = {
                kind: [
                    rate(kind, workers, variation, given.tasks, seed)
                    for seed in range(1, given.seeds + 1)
                ]
                for kind in KINDS
            }
            fast, slow = (statistics.mean(rates[kind]) / one for kind in KINDS)
            print(f"  {workers:7}{fast:15.2f}{slow:14.2f}{fast / slow:29.2f}", flush=True)


if __name__ == "__main__":
    main()
