"""Estimates how long runs take, from a short run of each kind that this host carries out first.

Runs of a kind have the engine, the algorithm, the dataset, the model, the number of workers and the
mini-batch in common; other settings change the speed by less than hosts differ in a day.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from testbed.experiment.load import dump
from testbed.experiment.spec import Spec
from testbed.sweeps.carrying_out import Result
from testbed.sweeps.pool import Job

LEAST, MOST = 100, 300
"""Updates of a run that measures a kind; within these limits, as many as between two evaluations."""
Kind: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed of a kind of run: updates per second, and the seconds before and after training."""

    updates: float
    around: float

    def seconds(self, spec: Spec) -> float:
        """Return the seconds that a run will take."""
        return self.around + spec.training.updates / self.updates


def kind(spec: Spec) -> Kind:
    """Return the key that runs of the same speed share."""
    (algorithm,) = spec.algorithms
    of_devices = (spec.devices.workers, spec.devices.runtime, spec.training.batch_size)
    return spec.engine, algorithm.name, spec.dataset.name, spec.model.name, *of_devices


def measuring(specs: Sequence[Spec], folder: Path) -> dict[Kind, Job]:
    """Return a short run of each kind, to be carried out in a folder that is then removed."""
    jobs: dict[Kind, Job] = {}
    for spec in specs:
        if (key := kind(spec)) not in jobs:
            words = " ".join(str(part) for part in (*key[1:4], f"{key[4]} workers"))
            jobs[key] = Job(f"measuring {words}", dump(_short(spec)), folder / str(len(jobs)))
    return jobs


def _short(spec: Spec) -> Spec:
    updates = min(spec.training.updates, max(LEAST, min(MOST, spec.evaluation.every)))
    training = spec.training.model_copy(update={"updates": updates})
    return spec.model_copy(update={"training": training})


def speeds(jobs: Mapping[Kind, Job]) -> dict[Kind, Speed]:
    """Return the speeds that measuring runs have had, without those that did not end well."""
    return {key: speed for key, job in jobs.items() if (speed := _speed(job.result))}


def _speed(result: Result | None) -> Speed | None:
    if result is None or result.ended != "completed" or not result.training_seconds:
        return None
    around = max(0.0, result.seconds - result.training_seconds)
    return Speed(result.updates / result.training_seconds, around)


def altogether(seconds: Sequence[float], at_once: int) -> float:
    """Return the seconds that runs take together, begun in this order, ``at_once`` at a time."""
    ends = [0.0] * at_once
    for one in seconds:
        heapq.heapreplace(ends, ends[0] + one)
    return max(ends)
