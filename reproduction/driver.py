"""Carries out the runs of the wanted parts: finds existing ones, estimates the time, runs the rest.

Started again after any interruption, it goes on where it stopped: complete runs are not repeated, and
an interrupted run is resumed from its last checkpoint if it has one.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from reproduction import estimate
from reproduction.display import Shown
from reproduction.jobs import Job, carry_out, child
from reproduction.paper import Paper, Part
from reproduction.runs import Folder, Wanted, wanted
from reproduction.series import Scale
from testbed.doctor import requirements
from testbed.errors import HostError, RunError, SpecError
from testbed.experiment.load import dump
from testbed.experiment.spec import Spec
from testbed.planning.data_check import check_data
from testbed.planning.plan import plan
from testbed.quantities import as_duration
from testbed.results.reading.run import Run

ENGINES = ("docker", "namespaces", "simulation")


@dataclass(frozen=True, slots=True)
class Order:
    """A request to carry out parts of a paper.

    Attributes:
        paper: the paper.
        parts: the wanted parts of it.
        scale: the size of the runs.
        seeds: the seeds; every line or row has a run for each.
        engine: one of ``ENGINES``.
        out: the folder of the runs.
        only: names of series, if not all are wanted.
        at_once: simulations at a time; None for one per processor.
    """

    paper: Paper
    parts: tuple[Part, ...]
    scale: Scale
    seeds: tuple[int, ...]
    engine: str
    out: Path
    only: frozenset[str] = frozenset()
    at_once: int | None = None

    def runs(self) -> list[Wanted]:
        """Return the wanted runs; raise SpecError if an experiment file cannot be used."""
        series = [one for part in self.parts for one in part.series]
        chosen = [one for one in series if not self.only or one.name in self.only]
        return wanted(chosen, self.scale, self.seeds)


def carry_out_missing(order: Order, say: Callable[[str], None]) -> int | None:
    """Carry out every wanted run that is not complete.

    Args:
        say: called with lines of text: the complete runs, the missing ones, the time they will take.

    Returns:
        The number of the signal that ended the work early; None if it was finished.

    Raises:
        SpecError: an experiment file cannot be used.
        HostError: this host cannot carry out the runs.
        DataError: the dataset is missing.
        RunError: a run failed (the others were carried out), or another process is carrying it out.
    """
    folder = Folder(order.out)
    runs = order.runs()
    missing = [one for one in runs if not folder.serves(one.identity, order.engine)]
    complete = f"{len(runs) - len(missing)} complete"
    say(f"{_count(len(runs))} at scale {order.scale.name}: {complete}")
    if not missing:
        return None
    for one in missing:
        begun = folder.begun(one.identity, order.engine)
        if begun is not None and begun.ended == "running":
            raise RunError(
                f"{one.title}: process {begun.manifest.pid} is at it; wait for it, or end it"
            )
    specs = {one.identity: _with_engine(one.spec, order) for one in missing}
    _check(list(specs.values()), order.out)
    at_once = _at_once(order, list(specs.values()))
    seconds, caught = _foresee(order, folder, missing, specs, at_once)
    if caught is not None:
        return caught
    missing.sort(key=lambda one: -seconds.get(one.identity, 0.0))  # begun last, it would run alone
    for one in missing:
        took = f", about {as_duration(known)}" if (known := seconds.get(one.identity)) else ""
        say(f"  missing: {one.title}{took}")
    say(_announcement([seconds.get(one.identity) for one in missing], at_once, order))
    with (
        tempfile.TemporaryDirectory(prefix="testbed-reproduction-") as files,
        Shown(len(missing)) as shown,
    ):
        jobs = []
        for i, one in enumerate(missing):
            if begun := _resumable(folder.begun(one.identity, order.engine), say):
                command = child(str(begun.directory))
            else:
                file = Path(files) / f"{i}.yaml"
                file.write_text(dump(specs[one.identity]), encoding="utf-8")
                command = child(str(file), str(order.out.absolute()))
            jobs.append(Job(one.title, command, one.spec.training.updates))
        caught = carry_out(jobs, at_once, shown)
    failed = [job for job in jobs if job.result and job.result["ended"] == "failed"]
    if caught is None and failed:
        reason = (failed[0].result or {})["reason"]
        raise RunError(f"{len(failed)} of {len(jobs)} runs failed; {failed[0].title}: {reason}")
    return caught


def _resumable(begun: Run | None, say: Callable[[str], None]) -> Run | None:
    """Return the run if it can be resumed from a checkpoint, else None; report why to ``say``."""
    if begun is None or not (begun.directory / "checkpoints").is_dir():
        return None
    from testbed.runs import resuming

    try:
        resuming.left([begun], whole=False)
    except SpecError as error:
        say(f"  begun anew: {error}")
        return None
    say(f"  continued: {begun.id}, from its last checkpoint")
    return begun


def _with_engine(spec: Spec, order: Order) -> Spec:
    every = spec.checkpoints.model_copy(update={"every": order.scale.checkpoint_every})
    spec = spec.model_copy(update={"checkpoints": every})
    if order.engine == "simulation":
        return spec.model_copy(update={"engine": "simulation"})
    devices = spec.devices.model_copy(update={"runtime": order.engine})
    return spec.model_copy(update={"engine": "emulation", "devices": devices})


def _check(specs: Sequence[Spec], out: Path) -> None:
    """Check the host and the data once, before any run is started."""
    plans = [one for spec in specs for one in plan(spec)]
    try:
        requirements.check(plans[:1], out)
    except HostError as error:
        other = "; ENGINE=simulation (--engine simulation) needs nothing of the host"
        raise HostError(f"{error}{other * (specs[0].engine == 'emulation')}") from error
    for one in {one.settings.data.train_images: one for one in plans}.values():
        check_data(one)


def _at_once(order: Order, specs: Sequence[Spec]) -> int:
    """Return the number of runs at a time: an emulation takes the host, a simulation a processor."""
    if order.engine != "simulation":
        return 1
    each = max(one.memory for spec in specs for one in plan(spec))
    room = max(1, psutil.virtual_memory().available // each)
    return min(order.at_once or len(os.sched_getaffinity(0)), len(specs), room)


def _foresee(
    order: Order,
    folder: Folder,
    missing: Sequence[Wanted],
    specs: dict[str, Spec],
    at_once: int,
) -> tuple[dict[str, float], int | None]:
    """Estimate the seconds of each missing run, without those too short to be measured.

    Returns:
        The seconds by identity, and the signal that ended the measuring early, if any.
    """
    path = order.out / "speeds.json"
    speeds = estimate.of_folder(folder, path)
    unknown = {
        estimate.kind(spec, order.engine): spec
        for spec in specs.values()
        if spec.training.updates >= estimate.WORTH
        and estimate.kind(spec, order.engine) not in speeds
    }
    if unknown:
        with Shown(len(unknown)) as shown:
            measured, caught = estimate.measure(unknown, at_once, shown)
        if caught is not None:
            return {}, caught
        estimate.keep(path, estimate.read(path) | measured)
        speeds |= measured
    known = {
        one.identity: speeds.get(estimate.kind(specs[one.identity], order.engine))
        for one in missing
    }
    return {
        key: speed.seconds(specs[key]) for key, speed in known.items() if speed is not None
    }, None


def _count(number: int) -> str:
    return f"{number} run{'s' * (number != 1)}"


def _announcement(seconds: Sequence[float | None], at_once: int, order: Order) -> str:
    count = _count(len(seconds))
    how = f"{order.engine}, {at_once} at a time"
    known = [one for one in seconds if one is not None]
    if len(known) < len(seconds):
        return f"{count} ({how}) as short as measuring how long they take would be"
    return f"about {as_duration(estimate.altogether(known, at_once))} for {count} ({how})"
