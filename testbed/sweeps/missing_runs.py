"""Carries out runs that are missing: checks the host, estimates the time, then runs them all.

It is what a sweep and a paper's reproduction have in common. Each run has a directory of its own, in
which it goes on if it ended early.
"""

import contextlib
import fcntl
import importlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed import execution
from testbed.display.many_runs import Screen
from testbed.errors import RunError, SpecError
from testbed.experiment.load import AnySpec, dump
from testbed.experiment.spec import Spec
from testbed.number_text import as_duration, as_number
from testbed.planning import capacity
from testbed.planning.halves import plugin_of
from testbed.planning.plan import Plan
from testbed.planning.plans import AnyPlan, plans_of
from testbed.run_endings import is_complete
from testbed.sweeps import estimate
from testbed.sweeps.cluster import Cluster
from testbed.sweeps.estimate import Kind, Speed
from testbed.sweeps.needed_runs import Wanted
from testbed.sweeps.pool import SweepJob, SweepPool

_LISTED = 20
"""Runs that are named one by one before they are carried out."""
_TRAINING = {"simulation": "testbed.simulation.simulated_run", "emulation": "testbed.roles.entry"}
"""By engine, the module whose libraries a run needs: the pool's processes are forked with them."""


@dataclass(frozen=True, slots=True)
class Means:
    """The means by which runs are carried out and shown.

    Attributes:
        say: is called with lines of text: what will run, and how long it will take.
        screen: makes the display of some runs from a title and their number.
        at_once: simulations at a time; None for one per core. Emulations run one after the other.
        ray: the address of a Ray cluster that carries out the runs, or ``auto``; None for this host.
    """

    say: Callable[[str], None]
    screen: Callable[[str, int], Screen]
    at_once: int | None = None
    ray: str | None = None


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """The outcome of carrying out the missing runs.

    Attributes:
        failed: the runs that failed, with the reason.
        caught: the number of the signal that ended the work early; None if it was finished.
    """

    failed: tuple[SweepJob, ...] = ()
    caught: int | None = None


class Shown:
    """Shows jobs on a screen; a ``testbed.sweeps.pool.Display``."""

    def __init__(self, screen: Screen, expected: Mapping[Path, float], at_once: int) -> None:
        """Make a display.

        Args:
            expected: the seconds that runs will take, by their directories, as far as known.
            at_once: the number of runs at a time.
        """
        self._screen = screen
        self._expected = dict(expected)
        self._at_once = at_once
        self._began = time.monotonic()
        self._all = sum(expected.values())

    def show(self, running: Sequence[SweepJob]) -> None:
        """Show the jobs that are running."""
        self._screen.show([(job.title, job.progress) for job in running], self._left())

    def event(self, job: SweepJob, level: str, text: str) -> None:
        """Print an event of a job, unless its level is ``info``."""
        if level != "info":
            self._screen.say(f"{job.title}: {level}: {text}")

    def ended(self, job: SweepJob) -> None:
        """Count a job that has ended, and say why if it is not complete."""
        assert job.result is not None
        self._screen.count(completed=is_complete(job.result.ended))
        self._expected.pop(job.directory, None)
        if job.result.ended != "completed":
            self._screen.say(f"{job.title}: {job.result.ended}: {job.result.reason}")

    def _left(self) -> float | None:
        """Return the seconds left: as long as was foreseen, times how wrong that was so far."""
        left = sum(self._expected.values())
        done = self._all - left
        if not done:
            return left / self._at_once or None
        return (time.monotonic() - self._began) * left / done


def carry_out_missing(
    name: str,
    missing: Sequence[Wanted[AnySpec]],
    folder: Path,
    means: Means,
    known: Mapping[Kind, Speed],
) -> CarriedOut:
    """Carry out runs, in their order.

    Args:
        name: is shown before the progress of all.
        missing: the runs, at least one, all on the same engine.
        folder: the folder that their directories are below; one process at a time works in it.
        known: the speeds of earlier runs.

    Raises:
        SpecError, DataError, HostError: they cannot be begun.
        RunError: another process is carrying out runs in the folder.
    """
    specs = [one.spec for one in missing]
    size = _at_once(specs, means)
    _announce(missing, size, means)
    _check(missing, folder, size)
    with _alone(folder), _processes(specs, size, means) as pool:
        caught, expected = _foresee(pool, missing, means, known)
        if caught is not None:
            return CarriedOut(caught=caught)
        _tell(missing, expected, pool.size, means.say)
        jobs = [SweepJob(one.title, dump(one.spec), one.directory) for one in missing]
        with means.screen(name, len(jobs)) as screen:
            caught = pool.carry_out(jobs, Shown(screen, expected, pool.size))
    failed = tuple(job for job in jobs if job.result and job.result.ended == "failed")
    return CarriedOut(failed, caught)


@contextlib.contextmanager
def _processes(specs: Sequence[AnySpec], size: int, means: Means) -> Iterator[SweepPool | Cluster]:
    """Yield what carries out runs: processes of this host, or a cluster that has been checked."""
    if means.ray is None:
        if _of_algorithms(specs):
            importlib.import_module(_TRAINING[specs[0].engine])
        with SweepPool(size) as pool:
            yield pool
        return
    with Cluster(means.ray, _memory(specs)) as cluster:
        first = _of_algorithms(specs)[0]  # a cluster has no others
        short = SweepJob("comparing the nodes", dump(estimate.short(first)), Path("compared"))
        with means.screen("comparing the nodes", 1) as screen:
            cluster.check(short, Shown(screen, {}, 1), means.say)
        yield cluster


def _announce(missing: Sequence[Wanted[AnySpec]], size: int, means: Means) -> None:
    say = means.say
    for one in missing[:_LISTED]:
        say(f"  {one.title}")
    if len(missing) > _LISTED:
        say(f"  and {len(missing) - _LISTED} more")
    how = "one after the other" if size == 1 else f"{size} at a time"
    say(f"{missing[0].spec.engine}, {how if means.ray is None else 'on a Ray cluster'}")


def _tell(
    missing: Sequence[Wanted[AnySpec]],
    expected: Mapping[Path, float],
    size: int,
    say: Callable[[str], None],
) -> None:
    if not any(expected.values()):
        return
    together = estimate.altogether([expected.get(one.directory, 0.0) for one in missing], size)
    unknown = len(missing) - len(expected)
    others = f", and {as_number(unknown, 'run')} not worth measuring" if unknown else ""
    say(f"about {as_duration(together)} altogether{others}")


def _foresee(
    pool: SweepPool | Cluster,
    missing: Sequence[Wanted[AnySpec]],
    means: Means,
    known: Mapping[Kind, Speed],
) -> tuple[int | None, dict[Path, float]]:
    """Measure a short run of each kind whose speed is not known.

    Returns:
        The signal that ended the measuring early, if any; the seconds of each run by its directory.
    """
    caught = None
    with tempfile.TemporaryDirectory(prefix="testbed-speed-") as folder:
        specs = _of_algorithms([one.spec for one in missing])
        jobs = estimate.measuring(specs, Path(folder), known)
        if jobs:
            with means.screen("measuring", len(jobs)) as screen:
                caught = pool.carry_out(list(jobs.values()), Shown(screen, {}, pool.size))
    speeds = {**known, **estimate.speeds(jobs)}
    expected: dict[Path, float] = {}
    for one in missing:
        if isinstance(one.spec, Spec) and (speed := speeds.get(estimate.kind(one.spec))):
            expected[one.directory] = speed.seconds(one.spec)
    return caught, expected


def _check(missing: Sequence[Wanted[AnySpec]], folder: Path, size: int) -> None:
    """Check the host and the data once, before any run is started."""
    different: dict[object, AnyPlan] = {}
    for one in missing:
        (planned,) = plans_of(one.spec)
        if not isinstance(planned, Plan):
            different[one.directory] = planned
            continue
        settings = planned.settings
        images = planned.spec.dataset.train_images
        data = (settings.dataset.key, images, str(settings.partition))
        sizes = planned.computing, settings.training.batch_size
        key = (one.spec.engine, *data, *sizes, plugin_of(planned))
        different.setdefault(key, planned)
    for planned in different.values():
        execution.check([planned] * size, folder)


def _at_once(specs: Sequence[AnySpec], means: Means) -> int:
    """Return the number of runs at a time: an emulation takes the host, a simulation a core."""
    emulated = any(spec.engine == "emulation" for spec in specs)
    if emulated and means.ray is not None:
        raise SpecError(
            "engine: a Ray cluster carries out simulations only, since an emulation takes a whole host "
            "and its root: add `--set engine=simulation`, or leave --ray out"
        )
    if emulated or means.ray is not None:
        return 1
    room = max(1, capacity.memory(0, _memory(specs)).devices)
    return min(means.at_once or len(os.sched_getaffinity(0)), len(specs), room)


def _memory(specs: Sequence[AnySpec]) -> int:
    """Return the bytes that the largest of the runs takes."""
    largest = max(specs, key=lambda spec: spec.devices.workers)
    return max(one.memory for one in plans_of(largest))


def _of_algorithms(specs: Sequence[AnySpec]) -> list[Spec]:
    """Return the specs of algorithms: how long programs of users take is not known."""
    return [one for one in specs if isinstance(one, Spec)]


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
