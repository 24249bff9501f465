"""Carries out a sweep: finds the runs that exist, estimates the time, runs the rest, writes results.

Started again after any interruption, it goes on where it stopped: complete runs are not repeated, and
one that ended early goes on from its last checkpoint, or from the beginning.
"""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from testbed import execution
from testbed.display.many import ManyRuns
from testbed.errors import RunError, SpecError
from testbed.experiment.load import dump
from testbed.experiment.spec import Spec
from testbed.experiment.sweep import Sweep
from testbed.planning.plan import Plan, plan
from testbed.quantities import as_duration, as_number
from testbed.results.reading.run import Run
from testbed.sweeps import estimate
from testbed.sweeps.figures import write_figures
from testbed.sweeps.pool import Job, Pool
from testbed.sweeps.results import rows, write_table
from testbed.sweeps.wanted import Wanted, wanted

_LISTED = 20
"""Runs that are named one by one before they are carried out."""


@dataclass(frozen=True, slots=True)
class Swept:
    """The results of a sweep so far.

    Attributes:
        folder: the folder of its runs, tables and figures.
        wanted: its runs.
        failed: the runs that were begun now and failed, with the reason.
        caught: the number of the signal that ended the work early; None if it was finished.
        table, figures: the paths of the results; empty if no run has begun.
    """

    folder: Path
    wanted: tuple[Wanted, ...]
    failed: tuple[Job, ...] = ()
    caught: int | None = None
    table: tuple[Path, ...] = ()
    figures: tuple[Path, ...] = ()

    @property
    def complete(self) -> int:
        """The number of complete runs."""
        return sum(_complete(one) for one in self.wanted)


class _Shown:
    """The display of a pool's jobs, which also says how long all will take still."""

    def __init__(self, screen: ManyRuns, expected: dict[Path, float], at_once: int) -> None:
        self._screen = screen
        self._expected = expected
        self._at_once = at_once
        self._began = time.monotonic()
        self._all = sum(expected.values())

    def show(self, running: Sequence[Job]) -> None:
        """Show the jobs that are running."""
        self._screen.show([(job.title, job.progress) for job in running], self._left())

    def event(self, job: Job, level: str, text: str) -> None:
        """Print an event of a job, unless its level is ``info``."""
        if level != "info":
            self._screen.say(f"{job.title}: {level}: {text}")

    def ended(self, job: Job) -> None:
        """Count a job that has ended, and say why if it is not complete."""
        assert job.result is not None
        completed = job.result.ended == "completed"
        self._screen.count(completed=completed)
        self._expected.pop(job.directory, None)
        if not completed:
            self._screen.say(f"{job.title}: {job.result.ended}: {job.result.reason}")

    def _left(self) -> float | None:
        """Return the seconds left: as long as was foreseen, times how wrong that was so far."""
        left = sum(self._expected.values())
        done = self._all - left
        if not done:
            return left / self._at_once or None
        return (time.monotonic() - self._began) * left / done


def carry_out(
    sweep: Sweep,
    runs_root: Path,
    say: Callable[[str], None],
    at_once: int | None = None,
    *,
    figures: bool = True,
) -> Swept:
    """Carry out every run of a sweep that is not complete, and write the results of all.

    Args:
        runs_root: the folder of all runs; those of the sweep are in ``NAME/sweep`` below it.
        say: called with lines of text: what will run, and how long it will take.
        at_once: simulations at a time; None for one per core. Emulations run one after the other.
        figures: True to draw the figures at the end, which takes seconds.

    Raises:
        SpecError, DataError, HostError: it cannot be begun.
        RunError: another process is carrying it out.
    """
    runs = wanted(sweep, runs_root)
    missing = [one for one in runs if not _complete(one)]
    folder = runs[0].directory.parent
    size = _at_once([one.spec for one in missing], at_once)
    announce(runs, missing, size, say)
    failed: tuple[Job, ...] = ()
    caught = None
    if missing:
        _check(missing, folder, size)
        with _alone(folder), Pool(size) as pool:
            caught, expected = foresee(pool, missing)
            if caught is None:
                seconds = [expected.get(one.directory, 0.0) for one in missing]
                if any(seconds):
                    about = as_duration(estimate.altogether(seconds, size))
                    say(f"about {about} altogether")
                jobs = [Job(one.title, dump(one.spec), one.directory) for one in missing]
                with ManyRuns(sweep.name, len(jobs)) as screen:
                    caught = pool.carry_out(jobs, _Shown(screen, expected, size))
                failed = tuple(job for job in jobs if job.result and job.result.ended == "failed")
    return with_results(Swept(folder, tuple(runs), failed, caught), sweep, figures=figures)


def with_results(swept: Swept, sweep: Sweep, *, figures: bool) -> Swept:
    """Write the table and, if wanted, the figures so far; return the sweep with their paths."""
    found = rows(swept.wanted)
    if not found:
        return swept
    table = write_table(found, sweep.keys, swept.folder)
    drawn = write_figures(found, sweep.keys, swept.folder / "figures") if figures else []
    return Swept(swept.folder, swept.wanted, swept.failed, swept.caught, tuple(table), tuple(drawn))


def announce(
    runs: Sequence[Wanted], missing: Sequence[Wanted], size: int, say: Callable[[str], None]
) -> None:
    """Say which runs there are and which will be carried out."""
    say(f"{as_number(len(runs), 'run')}, {len(runs) - len(missing)} of them complete")
    for one in missing[:_LISTED]:
        say(f"  {one.title}")
    if len(missing) > _LISTED:
        say(f"  and {len(missing) - _LISTED} more")
    if missing:
        how = "one after the other" if size == 1 else f"{size} at a time"
        say(f"{missing[0].spec.engine}, {how}")


def foresee(pool: Pool, missing: Sequence[Wanted]) -> tuple[int | None, dict[Path, float]]:
    """Measure a short run of each kind.

    Returns:
        The signal that ended the measuring early, if any; the seconds of each run by its directory.
    """
    with tempfile.TemporaryDirectory(prefix="testbed-speed-") as folder:
        jobs = estimate.measuring([one.spec for one in missing], Path(folder))
        with ManyRuns("measuring", len(jobs)) as screen:
            caught = pool.carry_out(list(jobs.values()), _Shown(screen, {}, pool.size))
    speeds = estimate.speeds(jobs)
    known = ((one, speeds.get(estimate.kind(one.spec))) for one in missing)
    return caught, {one.directory: speed.seconds(one.spec) for one, speed in known if speed}


def _complete(one: Wanted) -> bool:
    if not (one.directory / "manifest.json").exists():
        return False
    return Run.load(one.directory).manifest.ended == "completed"


def _check(missing: Sequence[Wanted], folder: Path, size: int) -> None:
    """Check the host and the data once, before any run is started."""
    different: dict[object, Plan] = {}
    for one in missing:
        (planned,) = plan(one.spec)
        settings = planned.settings
        data = (settings.data.dataset, settings.data.train_images, str(settings.data.partition))
        key = (one.spec.engine, *data, planned.computing, settings.training.batch_size)
        different.setdefault(key, planned)
    for planned in different.values():
        execution.check([planned] * size, folder)


def _at_once(specs: Sequence[Spec], wanted: int | None) -> int:
    """Return the number of runs at a time: an emulation takes the host, a simulation a core."""
    if not specs or any(spec.engine == "emulation" for spec in specs):
        return 1
    largest = max(specs, key=lambda spec: spec.devices.workers)
    each = max(one.memory for one in plan(largest))
    room = max(1, psutil.virtual_memory().available // each)
    return min(wanted or len(os.sched_getaffinity(0)), len(specs), room)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """In the body, keep other processes from carrying out runs in the same folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise SpecError(
            f"{folder} cannot be made ({error.strerror}): name another folder by --out"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise RunError(
            f"another process is carrying out runs in {folder}: wait for it, or end it"
        ) from None
    finally:
        os.close(descriptor)
