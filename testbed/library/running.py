"""Carrying out an experiment from a program, as ``testbed run`` and ``simulate`` do."""

import contextlib
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from testbed import execution
from testbed.display.displayed import displayed
from testbed.errors import InterruptedRunError, RunError
from testbed.library.experiment import Experiment
from testbed.library.reading import Run, Runs, open_runs
from testbed.planning.plan import plan
from testbed.planning.plans import AnyPlan
from testbed.run_endings import is_complete, worst
from testbed.runs.ending import incomplete
from testbed.runs.watching import Unwatched, Watcher

if TYPE_CHECKING:
    from testbed.experiment.spec import Spec


def run(
    experiment: Experiment | str | Path,
    *,
    out: str | Path = "runs",
    report: bool = False,
    progress: bool = True,
) -> Runs:
    """Carry out an experiment on the engine that it names, and return its runs.

    Ctrl-C ends the run, removes everything of it from this host but its directory, and is raised as
    ``KeyboardInterrupt``; ``testbed resume`` goes on with it. A run that diverged, or was disturbed, is
    returned like the others, with a ``RuntimeWarning``; its ``summary.ended`` says so.

    Args:
        experiment: an experiment, or the path of its file.
        out: the folder of all runs.
        report: True to draw the figures and write report.html as well, which takes seconds.
        progress: True to show how far the runs are, on a terminal, in a notebook or in a pipe.

    Raises:
        SpecError, DataError, HostError: it cannot be begun; nothing was started.
        RunError: a run failed; its directory says why.
    """
    if not isinstance(experiment, Experiment):
        experiment = Experiment.load(experiment)
    in_main_thread()
    spec, out = experiment.spec, Path(out)
    began = time.monotonic()
    execution.check(plan(spec), out)
    try:
        with _torch_as_before(spec), displayed() if progress else _quiet() as watch:
            carried_out = execution.execute(spec, out, watch, began, report=report)
        ended = worst(carried_out.summaries)
        if ended is not None and not is_complete(ended["ended"]):
            raise incomplete(ended, f"; its directory is in {carried_out.directory}")
    except InterruptedRunError as error:
        if error.exit_status == 128 + signal.SIGINT:
            raise KeyboardInterrupt(str(error)) from None
        raise
    runs = open_runs(carried_out.directory)
    warn_of_ends(runs)
    return runs


def simulate(
    experiment: Experiment | str | Path,
    *,
    out: str | Path = "runs",
    report: bool = False,
    progress: bool = True,
) -> Runs:
    """Carry out an experiment in this process, under the virtual clock, without any container.

    Parameters, payload and message bytes equal those of an emulation under that clock to the bit; wire
    bytes are modelled. Arguments, results and errors are those of ``run``.
    """
    if not isinstance(experiment, Experiment):
        experiment = Experiment.load(experiment)
    simulated = experiment.with_(engine="simulation", clock="virtual")
    return run(simulated, out=out, report=report, progress=progress)


def warn_of_ends(runs: Iterable[Run]) -> None:
    """Warn of each run that is complete and not ``completed``, at the caller of the function."""
    for run in runs:
        if run.summary.ended != "completed" and is_complete(run.summary.ended):
            told = f"{run.id} {run.summary.ended}: {run.summary.reason}"
            warnings.warn(told, RuntimeWarning, stacklevel=3)


def in_main_thread() -> None:
    """Raise RunError in any other thread."""
    if threading.current_thread() is not threading.main_thread():
        raise RunError(
            "runs are carried out in the main thread, the only one that Ctrl-C reaches: call this "
            "there, or start `testbed run` as a process"
        )


@contextlib.contextmanager
def _quiet() -> Iterator[Callable[[AnyPlan, int, int], Watcher]]:
    yield lambda *_: Unwatched()


@contextlib.contextmanager
def _torch_as_before(spec: "Spec") -> Iterator[None]:
    """Give torch its threads back after the body: a simulation, in this process, takes one."""
    if spec.engine != "simulation":
        yield
        return
    import torch

    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
