"""Estimates how long runs take, from runs of their kind that this host has made, or by measuring.

The rate of a run depends on the model, the algorithm and the engine. If the folder has no complete run
of a kind by this host, a few hundred real updates are carried out and timed, and the speed is kept for
the next time. Runs hardly longer than that are not measured.
"""

import heapq
import json
import platform
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow.parquet as pq

from reproduction.jobs import Display, Job, carry_out, child
from reproduction.runs import Folder
from testbed.errors import RunError
from testbed.experiment.load import dump
from testbed.experiment.spec import Spec
from testbed.results.reading.run import Run

MEASURED = 600
"""Updates of a run that measures a kind; the first 200 fill the rows of staleness counters."""
WORTH = 4 * MEASURED
"""The least number of updates of a run that is worth measuring a kind for."""
Kind: TypeAlias = str


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed at which a host makes runs of a kind.

    Attributes:
        updates: updates per second between two evaluations.
        evaluation: seconds by which an evaluation delays training.
        around: seconds of a run before its first and after its last update.
    """

    updates: float
    evaluation: float
    around: float

    def seconds(self, spec: Spec) -> float:
        """Return the seconds that a run will take."""
        updates = spec.training.updates
        evaluations = updates / spec.evaluation.every
        return self.around + updates / self.updates + evaluations * self.evaluation


def kind(spec: Spec, engine: str) -> Kind:
    """Return the key that runs of the same speed share."""
    (algorithm,) = spec.algorithms
    parts = [engine, platform.node(), spec.dataset.name, spec.model.name, spec.devices.workers]
    # In an emulation, moving parameters takes longer than what differs among compressing algorithms.
    ratio = getattr(algorithm, "ratio", None)
    if engine == "simulation":
        parts += [algorithm.name, ratio]
    else:
        parts.append("whole" if ratio is None else "compressed")
    return " ".join(map(str, parts))


def known(runs: Iterable[tuple[Spec, Run]]) -> dict[Kind, Speed]:
    """Return the speeds of this host's complete runs; later runs take precedence over earlier ones."""
    found = {}
    for spec, run in runs:
        summary, host = run.summary, run.manifest.host
        if run.ended != "completed" or host.name != platform.node():
            continue
        engine = "simulation" if spec.engine == "simulation" else spec.devices.runtime
        if summary.updates_per_second and summary.updates >= WORTH:
            around = 2 * (summary.setup_seconds or 0.0)
            found[kind(spec, engine)] = Speed(summary.updates_per_second, 0.0, around)
    return found


def measure(
    specs: Mapping[Kind, Spec], at_once: int, display: Display
) -> tuple[dict[Kind, Speed], int | None]:
    """Carry out a few hundred updates of each kind.

    Args:
        specs: a run of each kind, with its engine.
        at_once: the number of runs at a time, now and later.

    Returns:
        The speeds, and the signal that ended the measuring early, if any.

    Raises:
        RunError: one of these runs failed.
    """
    with tempfile.TemporaryDirectory(prefix="testbed-speed-") as folder:
        jobs = []
        for i, (name, spec) in enumerate(specs.items()):
            short = Path(folder) / f"{i}.yaml"
            short.write_text(dump(_shortened(spec)), encoding="utf-8")
            out = str(Path(folder) / str(i))
            jobs.append(Job(f"measuring {name}", child(str(short), out), MEASURED))
        caught = carry_out(jobs, at_once, display)
        if caught is not None:
            return {}, caught
        for job in jobs:
            if not job.complete:
                reason = (job.result or {}).get("reason")
                raise RunError(f"{job.title} did not come to its end: {reason}")
        speeds = [_speed(Path(job.result["directory"])) for job in jobs if job.result]
    return dict(zip(specs, speeds, strict=True)), None


def _shortened(spec: Spec) -> Spec:
    training = spec.training.model_copy(update={"updates": MEASURED})
    evaluation = spec.evaluation.model_copy(update={"every": MEASURED // 2})
    return spec.model_copy(update={"training": training, "evaluation": evaluation})


def _speed(directory: Path) -> Speed:
    """Compute the speed from a run with one evaluation in its middle."""
    table = pq.read_table(directory / "updates.parquet", columns=["host_time"])
    times = table.column("host_time").to_numpy()
    half = len(times) // 2
    before, after = times[half - 1] - times[half // 2], times[-1] - times[half]
    rate = (half - 1 - half // 2 + len(times) - 1 - half) / (before + after)
    stood_still = float(times[half] - times[half - 1] - 1 / rate)
    manifest = Run.load(directory).manifest
    assert manifest.finished is not None
    took = (manifest.finished - manifest.started).total_seconds()
    return Speed(float(rate), max(0.0, stood_still), max(0.0, took - float(times[-1])))


def altogether(seconds: Sequence[float], at_once: int) -> float:
    """Return the seconds that jobs take together, begun in this order, ``at_once`` at a time."""
    ends = [0.0] * at_once
    for one in seconds:
        heapq.heapreplace(ends, ends[0] + one)
    return float(np.max(ends))


def read(path: Path) -> dict[Kind, Speed]:
    """Return the speeds in a file; none if it does not exist or has another format."""
    try:
        return {name: Speed(**speed) for name, speed in json.loads(path.read_bytes()).items()}
    except (OSError, ValueError, TypeError):
        return {}


def keep(path: Path, speeds: Mapping[Kind, Speed]) -> None:
    """Write speeds into a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {name: asdict(speed) for name, speed in speeds.items()}
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def of_folder(folder: Folder, path: Path) -> dict[Kind, Speed]:
    """Return the speeds that were kept; those of the folder's own runs take precedence."""
    return read(path) | known(folder.all)
