"""How far a run is, for whoever watches it."""

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True)
class Progress:
    """How far a run is.

    Attributes:
        phase: ``loading``, ``devices``, ``training`` or ``finishing``.
        made: nodes that are there; nothing runs in them yet.
        linked: nodes that have their links.
        devices: workers that have greeted the server.
        all_devices: workers of the run.
        updates: applied so far.
        all_updates: of the run.
        rate: updates per second over the last few seconds.
        accuracy: of the last evaluation, in percent; None before the first.
        evaluations_due: evaluations that the evaluator is behind.
        wire_bytes: ingress so far.
        lost: workers that died.
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
    evaluations_due: int = 0
    wire_bytes: int = 0
    lost: int = 0
    _recent: list[tuple[float, int]] = field(default_factory=list)

    def moved(self, when: float, updates: int) -> None:
        """Note how many updates there are at a moment of the host's clock, in seconds."""
        self.updates = updates
        self._recent = [*self._recent[-25:], (when, updates)]
        (then, before), (now, after) = self._recent[0], self._recent[-1]
        if now > then:
            self.rate = (after - before) / (now - then)

    @property
    def time_left(self) -> float | None:
        """Seconds of training left at the present rate; None while that is unknown."""
        return (self.all_updates - self.updates) / self.rate if self.rate > 0 else None


class Watcher(Protocol):
    """Somebody who wants to see how a run goes."""

    def progress(self, progress: Progress) -> None:
        """Called a few times per second."""

    def event(self, level: str, text: str) -> None:
        """Called for what a person should know: a device that died, a connection closed."""
