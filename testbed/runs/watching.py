"""The progress of a run, and the interface of its watchers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from testbed.runs.outcome import RunOutcome
from testbed.training.settings import Settings


@dataclass(slots=True)
class Progress:
    """The progress of a run.

    Attributes:
        phase: ``loading``, ``devices``, ``training`` or ``finishing``.
        made: the number of nodes that are made; nothing runs in them yet.
        linked: the number of nodes that have their links.
        devices: the number of workers that have greeted the server.
        all_devices: the number of workers of the run.
        updates: updates applied so far.
        all_updates: updates of the whole run.
        rate: updates per second over the last few seconds.
        accuracy: of the last evaluation, in percent; None before the first.
        loss: of the last evaluation; None before the first.
        measured: of the last evaluation, the value of the run's measure.
        measure, unit: the name of that, None if the run has none, and its unit.
        evaluations_due: evaluations that are asked for and not on record yet.
        wire_bytes: ingress so far.
        lost: the number of workers that died.
    """

    phase: str
    all_devices: int
    all_updates: int
    made: int = 0
    linked: int = 0
    devices: int = 0
    updates: int = 0
    rate: float = 0.0
    accuracy: float | None = None
    loss: float | None = None
    measured: float | None = None
    measure: str | None = None
    unit: str = ""
    evaluations_due: int = 0
    wire_bytes: int = 0
    lost: int = 0
    _recent: list[tuple[float, int]] = field(default_factory=list)

    def moved(self, when: float, updates: int) -> None:
        """Record the number of updates at a moment of the host's clock, in seconds."""
        self.updates = updates
        self._recent = [*self._recent[-25:], (when, updates)]
        (then, before), (now, after) = self._recent[0], self._recent[-1]
        if now > then:
            self.rate = (after - before) / (now - then)

    def follow(self, outcome: RunOutcome) -> None:
        """Take over the last evaluation, and how many workers have died."""
        self.lost = outcome.workers_lost
        if outcome.accuracies:
            self.accuracy, self.loss = outcome.accuracies[-1], outcome.losses[-1]
            self.measured = outcome.measured[-1]

    @property
    def time_left(self) -> float | None:
        """Seconds of training left at the present rate; None while that is unknown."""
        return (self.all_updates - self.updates) / self.rate if self.rate > 0 else None


@dataclass(slots=True)
class ProgramProgress:
    """The progress of a run of programs.

    Attributes:
        phase: ``loading``, ``programs`` or ``finishing``.
        all_devices: the number of devices of the run.
        limit: seconds after which the run ends.
        made: the number of nodes that are made; nothing runs in them yet.
        linked: the number of nodes that have their links.
        running: the instances of each program that run, and their number.
        measure: the name of the last measurement; None before the first.
        measured: its value; an accuracy in percent.
        unit: the unit of the run's own measure.
        wire_bytes: ingress so far.
        seconds: since the programs began.
        lost: the number of devices that died.
    """

    phase: str
    all_devices: int
    limit: float
    made: int = 0
    linked: int = 0
    running: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    measure: str | None = None
    measured: float = 0.0
    unit: str = ""
    wire_bytes: int = 0
    seconds: float = 0.0
    lost: int = 0

    def follow(self, outcome: RunOutcome) -> None:
        """Take over how many devices have died."""
        self.lost = outcome.workers_lost


AnyProgress: TypeAlias = Progress | ProgramProgress


def progress_of(settings: Settings) -> Progress:
    """Return the progress of a run that begins."""
    measure = settings.measure
    return Progress(
        "loading",
        settings.workers,
        settings.training.updates,
        measure=None if measure is None else measure.name,
        unit="" if measure is None else measure.unit,
    )


class Watcher(Protocol):
    """Receives the progress and the events of a run, to show them to a person."""

    def progress(self, progress: AnyProgress) -> None:
        """Show the run's progress; called a few times per second."""

    def event(self, level: str, text: str) -> None:
        """Show an event that a person should know of: a device died, a connection was closed."""


class Unwatched(Watcher):
    """A watcher of a run that nobody watches: the run's directory has its events."""

    def progress(self, progress: AnyProgress) -> None:
        """Show nothing."""

    def event(self, level: str, text: str) -> None:
        """Show nothing."""
