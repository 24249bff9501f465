"""Which workers and peers can send, receive and be struck, after the faults so far."""

from collections.abc import Callable, Collection, Mapping, Sequence

from testbed.faults.fault import Fault
from testbed.messages.fault_changes import SILENT, UNREACHABLE, Kind
from testbed.orchestrator.injection.agenda import Agenda
from testbed.orchestrator.injection.impairments import Impairments
from testbed.orchestrator.injection.killable_workers import KillableWorkers


class Reachability:
    """The state of a run's workers or peers under its faults, by number.

    Attributes:
        told_others: by a peer that comes back, those that it calls, if the virtual clock has said so.
        above: returns the aggregators above a worker or an aggregator, by their numbers as workers.
    """

    def __init__(
        self,
        names: Mapping[int, str],
        workers: KillableWorkers,
        impairments: Impairments,
        agenda: Agenda,
        *,
        above: Callable[[int], Sequence[int]] = lambda _: (),
        co_located: int = 0,
    ) -> None:
        """Start with all of them reachable.

        Args:
            names: the workers' or peers' names.
            co_located: the number of workers, the first ones, with a server on their machine: what cuts
                its link cuts every worker off from that server.
        """
        self._names = names
        self.told_others: dict[int, Sequence[int]] = {}
        self._workers = workers
        self._impairments = impairments
        self._agenda = agenda
        self.above = above
        self._beside_servers = range(co_located)

    def can_be_struck(self, number: int) -> bool:
        """Return True if a fault may strike a worker: it is neither killed nor lost."""
        return self._workers.is_alive(number) and not self.is_lost(number)

    def lasts(self, fault: Fault, number: int, incarnation: int) -> bool:
        """Return True if a fault is still active; a freeze ends when the frozen process is killed."""
        if self._workers.is_gone(number):
            return False
        alive = self._workers.is_alive(number) and self._workers.incarnation(number) == incarnation
        return alive or fault.kind != "freeze"

    def is_lost(self, number: int) -> bool:
        """Return True if a worker can never push again: killed, frozen or disconnected for good."""
        if any(map(self.is_lost, self.above(number))):
            return True
        if self._workers.is_killed_for_good(number):
            return self.never_returns(number)
        for_good = self._impairments.has(number, SILENT, for_good=True)
        return for_good or self._is_a_server_cut_off(for_good=True)

    def can_greet(self, number: int) -> bool:
        """Return True if the aggregator that a worker greets is there, not frozen and not cut off."""
        return all(
            self._workers.is_alive(one) and not self._impairments.has(one, SILENT)
            for one in self.above(number)[:1]
        )

    def below(self, devices: Collection[int]) -> list[int]:
        """Return the numbers of the workers that are below any aggregators among some devices."""
        aggregators = set(devices) - self._names.keys()
        if not aggregators:
            return []
        return [one for one in self._names if not aggregators.isdisjoint(self.above(one))]

    def is_orphan(self, number: int) -> bool:
        """Return True if an aggregator above a worker or an aggregator is dead for good."""
        return any(map(self.never_returns, self.above(number)))

    def _is_a_server_cut_off(self, *, for_good: bool = False) -> bool:
        """Return True if the machine's link of a server that is beside a worker is down, or cut."""
        return any(
            self._impairments.has(number, UNREACHABLE, for_good=for_good)
            for number in self._beside_servers
        )

    def never_returns(self, number: int) -> bool:
        """Return True if a worker is dead for good: no kill of it ends, or its host is lost.

        So it is if an aggregator above it is.
        """
        if self.is_orphan(number):
            return True
        is_dead, returns = self._workers.is_killed_for_good(number), self._agenda.has_end(number)
        return is_dead and (self._workers.is_gone(number) or not returns)

    def is_deaf(self, number: int, kinds: Sequence[Kind]) -> bool:
        """Return True if a worker cannot receive all, under faults of some kinds or after an outage."""
        struck = self._impairments.has(number, kinds) or self._workers.is_unsettled(number)
        return struck or self._is_a_server_cut_off()

    def others(self, number: int) -> Sequence[int]:
        """Return the peers that a peer calls as it comes back."""
        told = self.told_others.pop(number, None)
        if told is not None:
            return told
        return [one for one in self._names if one != number and self.can_be_struck(one)]
