"""A system that is simulated: devices and their clock."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from testbed.checkpoints.stateful import State
from testbed.clock.device_use import DeviceUse
from testbed.clock.event_clock import EventClock
from testbed.learning.data import datasets
from testbed.learning.data.batches import Batches
from testbed.messages.fault_changes import FaultChange
from testbed.run_endings import SummaryContent
from testbed.training import computation
from testbed.training.service_entries import Entry
from testbed.training.settings import Settings
from testbed.updates import FloatVector


@dataclass(frozen=True, slots=True)
class EvaluatedVersion:
    """A version that is evaluated.

    Attributes:
        parameters: float32, (|Θ|,).
        ledger: the payload, message and modelled wire bytes when it was reached.
    """

    version: int
    parameters: FloatVector
    ledger: dict[str, int]


class Witness(Protocol):
    """The record of a simulation."""

    def record(self, entries: Sequence[Entry]) -> None:
        """Record entries of the run, in their order."""

    def fault(self, record: FaultChange) -> None:
        """Record that a fault begins or ends, as ``testbed.faults.fault.Fault.record`` describes it."""

    def returned(self, peer: int, version: int) -> None:
        """Record that a killed peer is back, with parameters of a version of its own."""


class System(ABC):
    """One run's devices and their clock."""

    clock: EventClock[Any]

    @property
    @abstractmethod
    def version(self) -> int:
        """The number of updates so far."""

    @property
    @abstractmethod
    def parameters(self) -> FloatVector:
        """The parameters that are evaluated; float32, (|Θ|,)."""

    @abstractmethod
    def ledger(self) -> dict[str, int]:
        """Return the payload, message and modelled wire bytes so far."""

    @abstractmethod
    def over_links(self) -> dict[tuple[str, str], int]:
        """Return the modelled wire bytes so far, by the names of their sender and receiver."""

    @abstractmethod
    def device_use(self) -> list[DeviceUse]:
        """Return what each device has done until now, in the order of ``clock.device_use``."""

    @property
    def evaluated(self) -> EvaluatedVersion:
        """The version to evaluate; valid while an ``EvaluationPoint`` is recorded."""
        return EvaluatedVersion(self.version, self.parameters, self.ledger())

    @abstractmethod
    def drain(self) -> None:
        """Count what is under way when training has ended, and close all connections."""

    @abstractmethod
    def state(self) -> State:
        """Return what a checkpoint keeps, between two events; of ``simulated_devices.STORED``."""

    @abstractmethod
    def restore(self, state: State) -> None:
        """Go on from a state."""

    @abstractmethod
    def resume_after(self, host_seconds: float, server_kills: int = 0) -> None:
        """Set the host's seconds that have passed already, and how often the server was killed."""

    @abstractmethod
    def end(self) -> None:
        """End the processes that compute for it, if there are any."""

    def pushed(self) -> dict[str, int]:
        """Return the bytes of all rows, if those within a machine are told apart; otherwise nothing."""
        return {}

    def own_summary(self) -> SummaryContent:
        """Return the summary's entries that only runs of this kind of system have."""
        return {}


def batches_of_all(settings: Settings, dataset: datasets.Dataset) -> Iterator[Batches]:
    """Yield every device's mini-batches, which share the memory that they are gathered in."""
    memory: Batches | None = None
    for number, part in enumerate(computation.parts(settings, dataset.train_labels)):
        memory = computation.batches(settings, dataset, part, number, memory=memory)
        yield memory
