"""Carry out an experiment: its runs one after the other, then the report."""

import shlex
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.doctor import requirements
from testbed.errors import (
    InterruptedRunError,
    RunError,
    SpecError,
    TestbedError,
)
from testbed.experiment.load import AnySpec, dump
from testbed.metrics.live import LiveRun
from testbed.metrics.live_programs import LivePrograms
from testbed.number_text import as_number
from testbed.orchestrator.emulated_run import EmulatedRun
from testbed.orchestrator.hosts.spread import Spread
from testbed.orchestrator.programs.program_run import ProgramRun
from testbed.planning.plans import AnyPlan, plans_of
from testbed.planning.program_plan import ProgramPlan
from testbed.roles.server import restart as coming_back
from testbed.run_endings import SummaryContent, worst
from testbed.runs.ending import LateSignalError, incomplete, signals
from testbed.runs.planned_run import PlannedRun
from testbed.runs.resuming import RunJob, clear, prepare
from testbed.runs.watching import Watcher

if TYPE_CHECKING:
    from testbed.metrics.exporter import Exporter
    from testbed.orchestrator.hosts.hosts_file import HostsFile


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """The results of one execution of an experiment file.

    Attributes:
        directory: its directory, with a run directory per run.
        summaries: those of the runs that were begun or resumed, in the order of the runs.
        report: the report's path; None if none was wanted.
    """

    directory: Path
    summaries: tuple[SummaryContent, ...]
    report: Path | None


def check(plans: Sequence[AnyPlan], directory: Path, *, spread: bool = False) -> None:
    """Check, before anything is started, that this host can carry out the runs of an experiment.

    Args:
        plans: those of one spec.
        directory: the folder below which they will write.
        spread: True if other hosts have devices, too.

    Raises:
        HostError, DataError, SpecError: it cannot.
    """
    for problem in requirements.problems(plans, directory, spread=spread):
        raise problem


def execute(
    spec: AnySpec,
    runs_root: Path,
    watcher: Callable[[AnyPlan, int, int], Watcher],
    began: float | None = None,
    exporter: "Exporter | None" = None,
    *,
    report: bool = True,
    hosts: "HostsFile | None" = None,
) -> ExecutionResult:
    """Carry out every run of an experiment; an interruption ends the whole experiment.

    Args:
        runs_root: the folder of all runs; the execution gets a folder below it.
        watcher: makes a run's watcher from its plan, its number from 1 and the number of runs.
        began: CLOCK_MONOTONIC when the command began; None for now.
        exporter: serves the metrics of the runs, if they are wanted.
        report: True to draw the figures and write the report at the end, which takes seconds.
        hosts: those that each run is spread over; None for this one.

    Raises:
        SpecError: the plan cannot be made, or the folder cannot be written.
    """
    plans = plans_of(spec)
    directory = _make_directory(runs_root / spec.name, spec.seed)
    (directory / "experiment.yaml").write_text(dump(spec), encoding="utf-8")
    jobs = [RunJob(one) for one in plans]
    summaries = _carry_out(jobs, directory, watcher, began, exporter, hosts=hosts)
    return _execution(directory, summaries, report)


def resume(
    directory: Path,
    jobs: Sequence[RunJob],
    watcher: Callable[[AnyPlan, int, int], Watcher],
    began: float | None = None,
    exporter: "Exporter | None" = None,
    *,
    report: bool = True,
) -> ExecutionResult:
    """Carry out the rest of an execution in its own directory, and write a new report.

    Args:
        directory: the execution's.
        jobs: the result of ``testbed.runs.resuming.left`` or ``never_begun``.
        watcher, began, exporter, report: as for ``execute``.

    Raises:
        SpecError: a run is being resumed already.
    """
    for job in jobs:
        if job.ended is None:
            clear(directory / job.plan.label)
    return _execution(directory, _carry_out(jobs, directory, watcher, began, exporter), report)


def _carry_out(
    jobs: Sequence[RunJob],
    directory: Path,
    watcher: Callable[[AnyPlan, int, int], Watcher],
    began: float | None,
    exporter: "Exporter | None",
    *,
    hosts: "HostsFile | None" = None,
) -> list[dict[str, Any]]:
    summaries: list[SummaryContent] = []
    for number, job in enumerate(jobs, 1):
        start = began if began is not None and number == 1 else time.monotonic()
        metrics: LiveRun | LivePrograms | None = None
        if exporter is not None:
            metrics = (
                LivePrograms(job.plan, directory.name)
                if isinstance(job.plan, ProgramPlan)
                else LiveRun(job.plan, directory.name)
            )
            exporter.add(metrics)
        watching = watcher(job.plan, number, len(jobs))
        try:
            where = directory / job.plan.label
            summaries.append(carry_out(job, where, watching, start, metrics, hosts=hosts))
        except LateSignalError as late:
            raise _interrupted_after(number, len(jobs), directory, late) from late
        if summaries[-1]["ended"] == "interrupted":
            break
    return summaries


def carry_out(
    job: RunJob,
    directory: Path,
    watcher: Watcher,
    began: float,
    metrics: LiveRun | LivePrograms | None = None,
    *,
    hosts: "HostsFile | None" = None,
) -> dict[str, Any]:
    """Start or resume one run, and return its summary when it has ended.

    Args:
        directory: the run directory; a run that is resumed is in it already.
        watcher: shows the run's progress.
        began: CLOCK_MONOTONIC when its set-up began.
        metrics: the run's metrics, if they are exported.
        hosts: those that the run is spread over; None for this one.

    Raises:
        RunError: its directory cannot be written.
        HostError, SpecError: another host does not answer, or cannot have what it is to have.
        LateSignalError: a signal came while its end was written.
    """
    # From here until the end is written, a signal only asks the run to end. The libraries that a run
    # imports would lose some of those that Python raises as KeyboardInterrupt.
    with signals() as wake_up:
        spread = None if hosts is None else Spread.called(hosts, job.plan)
        if isinstance(job.plan, ProgramPlan):
            assert not isinstance(metrics, LiveRun)
            of_programs = PlannedRun(job.plan, directory, watcher, began, metrics)
            return ProgramRun(of_programs, spread).execute(wake_up)
        assert not isinstance(metrics, LivePrograms)
        emulated, stored = job.plan.spec.engine == "emulation", coming_back.STORED
        if not emulated:
            # Only here: a simulation computes in this process, and importing torch takes seconds.
            from testbed.simulation.simulated_devices import STORED
            from testbed.simulation.simulated_run import SimulatedRun

            stored = STORED
        with ExitStack() as opened:
            resumption = None
            if job.ended:
                resumption = opened.enter_context(closing(prepare(job.ended, stored)))
            planned = PlannedRun(job.plan, directory, watcher, began, metrics, resumption)
            if emulated:
                return EmulatedRun(planned, spread).execute(wake_up)
            return SimulatedRun(planned).execute(wake_up)


def _interrupted_after(
    runs: int, of: int, directory: Path, late: LateSignalError
) -> InterruptedRunError:
    """Return the error of an execution that a signal ends after a run."""
    named = shlex.quote(str(directory))
    rest = (
        f"`testbed report {named}` writes the report"
        if runs == of
        else f"`testbed resume {named}` carries out the others"
    )
    return InterruptedRunError(
        f"stopped by {late} after {as_number(runs, 'run')} of {of}: {rest}", late.number
    )


def _execution(
    directory: Path, summaries: Sequence[SummaryContent], report: bool
) -> ExecutionResult:
    """Return the results of runs that have ended, with their report if one is wanted."""
    if not report:
        return ExecutionResult(directory, tuple(summaries), None)
    try:
        return ExecutionResult(directory, tuple(summaries), write_results(directory))
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"interrupted while the report was written; the runs are complete: `testbed report "
            f"{shlex.quote(str(directory))}` writes the report",
            signal.SIGINT,
        ) from None
    except TestbedError as error:
        # How the runs ended matters more, and is often the cause (a full disk).
        if (ended := worst(summaries)) is not None:
            raise incomplete(ended, f"; and {error}") from error
        raise


def write_results(directory: Path) -> Path:
    """Draw an execution's figures and write its report; return the report's path."""
    from testbed.results.figures.chart_files import write_figures
    from testbed.results.reading.finding import resolve
    from testbed.results.report.report import write_report

    runs = resolve(str(directory), directory.parent.parent)
    try:
        write_figures(runs, directory / "figures")
        return write_report(runs, directory / "report.html")
    except OSError as error:
        raise RunError(f"the report could not be written: {error}") from error


def _make_directory(parent: Path, seed: int) -> Path:
    """Make the execution's directory; a second one in the same second gets a number as its suffix."""
    try:
        str(parent).encode()
    except UnicodeEncodeError as error:  # pyarrow opens files by names in UTF-8
        raise SpecError(f"{parent} is no name in UTF-8: name another folder by --out") from error
    name = f"{datetime.now():%Y%m%d-%H%M%S}-{seed}"
    for suffix in ("", *(f".{i}" for i in range(2, 100))):
        directory = parent / f"{name}{suffix}"
        try:
            directory.mkdir(parents=True)
        except FileExistsError:
            if not parent.is_dir():
                raise SpecError(f"{parent} is not a folder: name another by --out") from None
            continue
        except OSError as error:  # no permission, no folder, read-only, full
            raise SpecError(
                f"{directory} cannot be made ({error.strerror}): name another folder by --out"
            ) from error
        return directory
    raise SpecError(f"{parent / name} and 98 more of that second exist: run it again")
