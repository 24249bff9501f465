"""Carries out one run of a sweep in this process: begins it, or goes on with what there is of it."""

import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

from testbed import execution
from testbed.errors import TestbedError
from testbed.experiment import load
from testbed.planning.plan import Plan
from testbed.planning.plans import plans_of
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.reading.run_files import State, Summary
from testbed.run_endings import is_complete, is_kept
from testbed.runs.ending import LateSignalError
from testbed.runs.resuming import RunJob, left
from testbed.runs.watching import Watcher


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended.

    Attributes:
        ended: one of ``testbed.run_endings.STATES``.
        reason: why, unless it is ``completed``.
        seconds: how long it took, with reading the data and writing its end.
        training_seconds: the seconds of training among them.
    """

    ended: State
    reason: str | None = None
    seconds: float = 0.0
    training_seconds: float = 0.0
    updates: int = 0


def carry_out(spec_text: str, directory: Path, watcher: Watcher, share: int = 1) -> Result:
    """Carry out a run, unless it has the result of its file already.

    Args:
        spec_text: a resolved spec with one algorithm, as ``dump`` writes it.
        directory: the run directory; if it exists, the run in it goes on, or a disturbed one is removed
            and made again.
        watcher: shows the run's progress.
        share: the processors of the run, if it is a simulation that may choose how many it takes.
    """
    try:
        job = _job(spec_text, directory)
        if not isinstance(job, RunJob):
            return Result(job.ended, job.reason)
        if isinstance(job.plan, Plan) and job.plan.spec.engine == "simulation":
            job = replace(job, plan=job.plan.with_share(share))
            # A process loads torch only once: these seconds are not the run's.
            from testbed.simulation import simulated_run as _  # noqa: F401
        began = time.monotonic()
        summary = execution.carry_out(job, directory, watcher, began)
    except LateSignalError as late:
        return Result("interrupted", f"stopped by {late}")
    except TestbedError as error:
        return Result("failed", str(error))
    return Result(
        summary["ended"],
        summary["reason"],
        time.monotonic() - began,
        summary["host_seconds"],
        summary["updates"],
    )


def _job(spec_text: str, directory: Path) -> RunJob | Summary:
    """Return what is left of a run, or its summary if that is kept."""
    if (directory / "manifest.json").exists():
        run = RecordedRun.load(directory)
        if is_kept(run.ended):
            return run.summary
        if not is_complete(run.ended) and not run.manifest.programs:
            return left([run], whole=False)[0]
    if directory.exists():  # it was disturbed, is of programs, or was killed before it had written
        shutil.rmtree(directory)
    (one,) = plans_of(load.parse_any(spec_text, directory / "spec.yaml"))
    return RunJob(one)
