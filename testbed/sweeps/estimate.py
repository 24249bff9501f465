"""Estimates how long runs take: from this host's earlier runs of their kind, or from a short one.

Runs of a kind have the engine, the algorithm, the dataset, the model, the number of workers and the
mini-batch in common; other settings change the speed by less than hosts differ in a day. A kind is
measured only if its runs together are much longer than the run that measures it.
"""

import heapq
import platform
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from testbed.experiment.load import dump
from testbed.experiment.spec import Spec
from testbed.results.reading.recorded_run import RecordedRun
from testbed.run_endings import is_complete
from testbed.sweeps.one_run import Result
from testbed.sweeps.pool import SweepJob

LEAST, MOST = 100, 300
"""Updates of a run that measures a kind; within these limits, as many as between two evaluations."""
WORTH = 4
"""The least ratio of the updates of a kind's runs to those of the run that measures the kind."""
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


def of_runs(runs: Iterable[tuple[Spec, RecordedRun]]) -> dict[Kind, Speed]:
    """Return the speeds of complete runs that this host made in one session; later runs count."""
    found = {}
    for spec, run in runs:
        manifest, seconds = run.manifest, run.summary.host_seconds
        here = manifest.host.name == platform.node()
        if here and not manifest.resumed and manifest.finished is not None and seconds:
            whole = (manifest.finished - manifest.started).total_seconds()
            found[kind(spec)] = Speed(run.summary.updates / seconds, max(0.0, whole - seconds))
    return found


def measuring(
    specs: Sequence[Spec], folder: Path, known: Mapping[Kind, Speed]
) -> dict[Kind, SweepJob]:
    """Return a short run of each kind, to be carried out in a folder that is then removed."""
    of_kind: dict[Kind, list[Spec]] = defaultdict(list)
    for spec in specs:
        of_kind[kind(spec)].append(spec)
    jobs: dict[Kind, SweepJob] = {}
    for key, alike in of_kind.items():
        first = short(alike[0])
        together = sum(spec.training.updates for spec in alike)
        if key not in known and together >= WORTH * first.training.updates:
            words = " ".join(str(part) for part in (*key[1:4], f"{key[4]} workers"))
            jobs[key] = SweepJob(f"measuring {words}", dump(first), folder / str(len(jobs)))
    return jobs


def short(spec: Spec) -> Spec:
    """Return a short run of the kind of a spec."""
    updates = min(spec.training.updates, max(LEAST, min(MOST, spec.evaluation.every)))
    training = spec.training.model_copy(update={"updates": updates})
    return spec.model_copy(update={"training": training})


def speeds(jobs: Mapping[Kind, SweepJob]) -> dict[Kind, Speed]:
    """Return the speeds that measuring runs have had, without those that did not end well."""
    return {key: speed for key, job in jobs.items() if (speed := _speed(job.result))}


def _speed(result: Result | None) -> Speed | None:
    if result is None or not is_complete(result.ended) or not result.training_seconds:
        return None
    around = max(0.0, result.seconds - result.training_seconds)
    return Speed(result.updates / result.training_seconds, around)


def altogether(seconds: Sequence[float], at_once: int) -> float:
    """Return the seconds that runs take together, begun in this order, ``at_once`` at a time."""
    ends = [0.0] * at_once
    for one in seconds:
        heapq.heapreplace(ends, ends[0] + one)
    return max(ends)
