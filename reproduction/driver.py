"""Carries out the runs of the wanted parts: finds existing ones, and makes the others as a sweep.

Started again after any interruption, it goes on where it stopped, as ``testbed sweep`` does. A run that
the pages have a record of counts as well, so that another host goes on where the first one stopped.
"""

from dataclasses import dataclass
from pathlib import Path

from reproduction.paper import Measurement, Paper, Part
from reproduction.records import Records
from reproduction.runs import Folder, Needed, Setting, different, of_lines
from reproduction.series import Scale
from testbed.errors import HostError, RunError
from testbed.number_text import as_number
from testbed.sweeps import estimate, missing_runs
from testbed.sweeps.missing_runs import Means

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
        measurements: the wanted parts that need no runs.
    """

    paper: Paper
    parts: tuple[Part, ...]
    scale: Scale
    seeds: tuple[int, ...]
    engine: str
    out: Path
    only: frozenset[str] = frozenset()
    measurements: tuple[Measurement, ...] = ()

    def runs(self) -> list[Needed]:
        """Return the wanted runs, each once; raise SpecError if an experiment file cannot be used."""
        series = [one for part in self.parts for one in part.series]
        chosen = [one for one in series if not self.only or one.name in self.only]
        setting = Setting(self.scale, self.seeds, self.out, self._options())
        return different(of_lines(chosen, setting))

    def _options(self) -> tuple[str, ...]:
        every = self.scale.checkpoint_every
        options = [f"checkpoints.every={every}"] if every else []
        if self.engine == "simulation":
            return (*options, "engine=simulation")
        return (*options, "engine=emulation", f"devices.runtime={self.engine}")


def carry_out_missing(order: Order, means: Means, records: Records) -> int | None:
    """Carry out every wanted run that is not complete.

    Args:
        records: those of the pages that will be written; a run that has one counts as complete.

    Returns:
        The number of the signal that ended the work early; None if it was finished.

    Raises:
        SpecError: an experiment file cannot be used.
        HostError: this host cannot carry out the runs.
        DataError: the dataset is missing.
        RunError: a run failed (the others were carried out), or another process is at work.
    """
    folder = Folder(order.out)
    runs = order.runs()
    left = [
        one.run
        for one in runs
        if not any(done.serves(one.identity, order.engine) for done in (folder, records))
    ]
    complete = f"{len(runs) - len(left)} of them complete"
    means.say(f"{as_number(len(runs), 'run')} at scale {order.scale.name}, {complete}")
    if not left:
        return None
    known = estimate.of_runs(folder.complete)
    name = f"{order.paper.name} {order.scale.name}"
    try:
        done = missing_runs.carry_out_missing(name, left, order.out.absolute(), means, known)
    except HostError as error:
        other = "; ENGINE=simulation (--engine simulation) needs nothing of the host"
        raise HostError(f"{error}{other * (order.engine != 'simulation')}") from error
    if done.caught is None and done.failed:
        first = done.failed[0]
        reason = first.result.reason if first.result else None
        raise RunError(
            f"{len(done.failed)} of {as_number(len(left), 'run')} failed; {first.title}: {reason}; "
            "started again, it tries them once more"
        )
    return done.caught
