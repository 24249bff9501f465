"""A run of peers, as tests of their clock have it: nothing is declared, and nobody is suspected."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from testbed.messages.reports import Suspected, Welcomed
from testbed.training.exchange import Step
from testbed.training.peer_bytes import Message
from testbed.training.service_entries import Diagnosed, Entry


class Undiagnosed:
    """Takes all entries but diagnostics."""

    def record(self, entries: Sequence[Entry]) -> None:
        assert not any(isinstance(entry, Diagnosed) for entry in entries)


class QuietRecord(Undiagnosed):
    """Takes rows and evaluations, and nothing else: nobody is suspected, either."""

    def record(self, entries: Sequence[Entry]) -> None:
        super().record(entries)
        assert not any(isinstance(entry, Suspected | Welcomed) for entry in entries)


class Devices(Protocol):
    """The computations and messages of a test's peers, by the peers' numbers."""

    def begin(self, peer: int) -> None: ...

    def finish(self, peer: int) -> Step | None: ...

    def arrive(self, receiver: int, sender: int) -> Sequence[Message]: ...

    def ready(self, peer: int) -> bool: ...


@dataclass(frozen=True)
class HandsOf:
    """The hands of one of them."""

    devices: Devices
    peer: int

    waits_for = ()

    @property
    def ready(self) -> bool:
        return self.devices.ready(self.peer)

    def compute(self) -> None:
        self.devices.begin(self.peer)

    def step(self) -> Step | None:
        return self.devices.finish(self.peer)

    def receive(self, sender: int) -> Sequence[Message]:
        return self.devices.arrive(self.peer, sender)

    def suspect(self, peer: int) -> None:
        raise AssertionError("nobody is suspected")

    def forget(self, peer: int) -> None:
        pass

    def joined(self, peer: int) -> None:
        pass
