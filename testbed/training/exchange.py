"""The record of a run of peers that exchange updates: no socket, no clock, no thread.

There is no server that counts: an *update* of such a run is one step of any peer, and updates are
numbered in the order in which they are taken. A row has the versions of the peer's own model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from testbed.checkpoints.stateful import Stateful
from testbed.messages.reports import Suspected, Welcomed
from testbed.telemetry.update_rows import UpdateRow
from testbed.training.parameter_service import as_loss
from testbed.training.peer_bytes import Message, PeerBytes
from testbed.training.service_entries import Diagnosed, Entry, EvaluationPoint, UpdateEntry
from testbed.training.settings import Settings


@dataclass(frozen=True, slots=True)
class Step:
    """A peer has taken a step, as it has finished a gradient, and has sent the messages of it.

    Attributes:
        base_version: its model's version when it began to compute.
        staleness: updates of others that its model took in since then.
        messages: the messages it sends, in the order in which they leave.
        diagnostics: the algorithm's, in the order in which it declares them.
    """

    base_version: int
    staleness: int
    loss: float
    messages: Sequence[Message]
    diagnostics: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Answered:
    """A peer has sent messages because of one that it took in."""

    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class Suspects:
    """A peer waits no longer for another one, silent for ``silent`` seconds."""

    peer: int
    silent: float


@dataclass(frozen=True, slots=True)
class Hears:
    """Something has come from a peer that was suspected, or it has come back."""

    peer: int


Told: TypeAlias = Step | Answered | Suspects | Hears


class ExchangeService(Stateful):
    """Records one run.

    Attributes:
        updates: steps so far, of all peers.
        bytes: of the messages to each peer.
    """

    not_saved = frozenset({"_neighbours", "_all_updates", "_evaluate_every"})

    def __init__(
        self, settings: Settings, neighbours: Sequence[Sequence[int]], counted: PeerBytes
    ) -> None:
        self.begun = False
        self.updates = 0
        self.bytes = counted
        self._neighbours = neighbours
        # By peer: payload and message bytes of what it has passed on or answered since its last step.
        self._between_steps = [(0, 0)] * settings.workers
        self._all_updates = settings.training.updates
        self._evaluate_every = settings.spec.evaluation.every
        self._suspected_by: dict[int, set[int]] = {}

    @property
    def finished(self) -> bool:
        return self.updates >= self._all_updates

    def begin(self) -> list[Entry]:
        """Start training: the peers have connected, and the initial model is evaluated."""
        self.begun = True
        self.bytes.connected(self._neighbours)
        return [self._evaluation()]

    def _evaluation(self) -> EvaluationPoint:
        return EvaluationPoint(self.updates, (*self.bytes.total, 0, 0), self.finished)

    def told(self, by: int, what: Told, time: float, host_time: float) -> list[Entry]:
        """Take in what a peer has done; return what is to be recorded.

        Args:
            time: when, in seconds since training began by the run's clock.
            host_time: the same by the host's clock.
        """
        self.bytes.sent(by, what.messages if isinstance(what, Step | Answered) else ())
        if isinstance(what, Step):
            return self._stepped(by, what, time, host_time)
        if isinstance(what, Answered):
            self._between_steps[by] = self._sent(by, what)
        if isinstance(what, Suspects):
            others = self._suspected_by.setdefault(what.peer, set())
            others.add(by)
            new = others == {by}
            return [Suspected(what.peer, what.silent, time, self.updates)] if new else []
        return self._heard(what.peer, by, time) if isinstance(what, Hears) else []

    def _sent(self, by: int, what: Step | Answered) -> tuple[int, int]:
        """Return payload and message bytes of what a peer sends, with what it has passed on before."""
        payload, size = self._between_steps[by]
        return (
            payload + sum(message.payload for message in what.messages),
            size + sum(message.size for message in what.messages),
        )

    def _heard(self, peer: int, by: int, time: float) -> list[Entry]:
        others = self._suspected_by.get(peer, set())
        if by not in others:
            return []
        others.remove(by)
        return [] if others else [Welcomed(peer, time, self.updates)]

    def arrived(self, receiver: int, sender: int) -> None:
        """Count a message that has reached a peer, by the clock."""
        self.bytes.arrived(receiver, sender)

    def part(self) -> None:
        """End training: what is under way arrives, then peers tell their neighbours that they stop."""
        self.bytes.parted(self._neighbours)

    def lose(self, peer: int) -> None:
        self.bytes.lost(peer)

    def returned(self, peer: int, others: Sequence[int], time: float) -> list[Entry]:
        """Take back a peer that was gone, and has connected to others.

        It suspects none, and is suspected by none.
        """
        self.bytes.returned(peer, others)
        found = []
        for one, by in sorted(self._suspected_by.items()):
            for suspecting in sorted(by if one == peer else by & {peer}):
                found += self._heard(one, suspecting, time)
        return found

    def _stepped(self, peer: int, step: Step, time: float, host_time: float) -> list[Entry]:
        if self.finished:
            return []
        self.updates += 1
        payload, size = self._sent(peer, step)
        self._between_steps[peer] = (0, 0)
        row = UpdateRow(
            iteration=self.updates,
            worker=peer,
            base_version=step.base_version,
            staleness=step.staleness,
            payload_bytes=payload,
            message_bytes=size,
            loss=as_loss(step.loss),
            time=time,
            host_time=host_time,
            applied=True,
        )
        found: list[Entry] = [UpdateEntry(row, self.updates)]
        if step.diagnostics:
            found.append(Diagnosed(step.diagnostics, self.updates))
        if self.updates % self._evaluate_every == 0 or self.finished:
            found.append(self._evaluation())
        return found
