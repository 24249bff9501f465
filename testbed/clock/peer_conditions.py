"""Peers that are frozen, cut off or slowed down, under the virtual clock.

A freeze delays the end of a computation by as long as it lasts, and nothing begins during it. Messages
that arrive meanwhile wait at the peer, which takes them in at its thaw; what its kernel has to send
leaves all the same. A link that is down holds what is under way on it and loses nothing
(``testbed.clock.transfers``); the peer computes on, as far as its half and its uplink let it.

A peer that is frozen or cut off for good is lost, which the others cannot know: they go on sending to
it. A killed peer may come back as a new incarnation; faults of its link and slow faults outlive it.
``testbed.clock.peer_faults`` decides which peers are struck, and when.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from testbed.clock.mesh import ARRIVED, AT_CORE, BEGIN, FINISHED, FREE, SILENT, WAITED, MeshClock
from testbed.clock.mesh_interface import MeshFaultStage
from testbed.clock.transfers import Line
from testbed.faults.fault import Fault
from testbed.faults.pace import Pace


@dataclass(slots=True)
class Condition:
    """The condition of one peer: what faults have done to it.

    Attributes:
        frozen: the time at which its freeze ends, in seconds.
        owed: seconds by which the end of its computation under way is late.
        lost: True if nothing more will come from it.
        slow: the faults that slow it down, by their strike's number and in the order in which they
            began.
        factor: the factor by which its durations are multiplied.
        incarnation: how often it was killed.
        away: the links of a killed peer that may come back.
    """

    frozen: float = 0.0
    owed: float = 0.0
    lost: bool = False
    slow: dict[int, Fault] = field(default_factory=dict)
    factor: float = 1.0
    incarnation: int = 0
    away: tuple[Line, Line] | None = None


class PeerConditions:
    """The conditions of a run's peers: the clock consults them, and faults change them."""

    def __init__(self, clock: MeshClock, stage: MeshFaultStage) -> None:
        """Begin with peers that are all well."""
        self._clock = clock
        self._stage = stage
        self._conditions = {peer: Condition() for peer in clock.peers}
        self._frozen: set[int] = set()
        """The peers whose thaw the stage was not told yet."""

    def __getitem__(self, peer: int) -> Condition:
        """Return a peer's condition."""
        return self._conditions[peer]

    # -- what the clock asks

    def delays(self, time: float, rank: int, peer: int, sender: int) -> bool:
        """Return True if an event does not take place now; it may have been put off."""
        one = self._conditions[peer]
        if one.lost and rank in (AT_CORE, ARRIVED, WAITED):
            return True  # it takes nothing in any more
        if one.frozen > time and rank in (ARRIVED, WAITED):
            self._put_off(one.frozen, WAITED, peer, sender)
        elif one.frozen > time and rank in (BEGIN, SILENT):
            self._put_off(one.frozen, rank, peer)
        elif rank == FINISHED and one.owed:
            self._put_off(time + one.owed, FINISHED, peer)
            one.owed = 0.0
        else:
            return False
        return True

    def _put_off(self, time: float, rank: int, peer: int, sender: int = 0) -> None:
        """Add an event for a later time; at an infinite time it never happens."""
        if time < inf:
            self._clock.add(time, rank, peer, sender)

    def factor(self, peer: int) -> float:
        """Return the factor by which a peer's durations are multiplied."""
        return self._conditions[peer].factor

    def begins(self, peer: int) -> None:
        """Note that a peer begins a computation, which no freeze has made late yet."""
        self._conditions[peer].owed = 0.0

    def is_cut_off(self, peer: int) -> bool:
        """Return True if a peer's link is down."""
        one = self._clock.peers.get(peer)
        return one is not None and one.up.down > self._clock.now

    def freed(self, peer: int) -> None:
        """Let transfers pass a peer's link again, if it is up."""
        self._set_rates(peer)

    def thaw_due(self) -> None:
        """Let the peers go on whose freeze has ended.

        Not at the end of a freeze itself: another one may begin, or end, at the same moment.
        """
        for peer in sorted(self._frozen):
            if self._conditions[peer].frozen <= self._clock.now:
                self._frozen.remove(peer)
                self._stage.thaw(peer)

    def unreachable(self) -> Iterator[int]:
        """Yield the peers that are frozen, cut off or lost now."""
        for peer, one in self._conditions.items():
            if one.lost or one.frozen > self._clock.now or self.is_cut_off(peer):
                yield peer

    # -- what faults do to a peer

    def freeze(self, peer: int, until: float) -> None:
        """Stop a peer until a time."""
        one = self._conditions[peer]
        if until <= one.frozen:
            return
        begin = max(one.frozen, self._clock.now)
        if self._clock.peers[peer].computes:
            one.owed += until - begin
        if until < inf:  # otherwise the computation is cut short
            self._clock.computing.freeze(peer, begin, until)
        one.frozen = until
        if peer not in self._frozen:
            self._frozen.add(peer)
            self._stage.freeze(peer)

    def cut_off(self, peer: int, until: float) -> None:
        """Take a peer's link down until a time."""
        now, one = self._clock.now, self._clock.peers[peer]
        self._clock.change_lines(peer, one.up.hold(now, until), one.down.hold(now, until))
        self._clock.absorb(peer)
        self._set_rates(peer)
        self._clock.add(until, FREE, peer)

    def _set_rates(self, peer: int) -> None:
        """Apply to transfers over shared links what faults have done to the peer's own link."""
        transfers = self._clock.transfers
        if transfers is not None and peer in self._clock.peers:
            pace = Pace.under(self._conditions[peer].slow.values())
            rates = pace.uplink, pace.downlink
            transfers.set_rates(self._clock.now, peer, *rates, is_down=self.is_cut_off(peer))

    def slow(self, peer: int, strike: int, fault: Fault | None) -> None:
        """Begin a fault that slows a peer down or, with None, end it; other such faults go on."""
        condition = self._conditions[peer]
        if fault is None:
            del condition.slow[strike]
        else:
            condition.slow[strike] = fault
        condition.factor = Pace.under(condition.slow.values()).factor
        self._slow_link(peer)

    def _slow_link(self, peer: int) -> None:
        """Apply the faults that slow a peer's own link down."""
        pace = Pace.under(self._conditions[peer].slow.values())
        if self._clock.transfers is not None:
            self._set_rates(peer)
        elif peer in self._clock.peers:
            now, one = self._clock.now, self._clock.peers[peer]
            ways = one.up.change(now, pace.uplink), one.down.change(now, pace.downlink)
            self._clock.change_lines(peer, *ways)

    def lose(self, peer: int, fault: Fault) -> None:
        """Make a peer silent for good: what its kernel has leaves it unless it is cut off."""
        condition = self._conditions[peer]
        condition.lost = True
        if fault.kind == "freeze":
            self.freeze(peer, inf)
        else:
            condition.frozen = inf  # what it computes is of no use
            one = self._clock.peers[peer]
            one.up.down = one.down.down = inf
            self._clock.drop_what_leaves(peer)
            self._clock.absorb(peer)
            self._set_rates(peer)
        self._clock.stop(peer)

    def kill(self, peer: int, until: float) -> None:
        """Kill a peer, which may come back at a time."""
        condition, one = self._conditions[peer], self._clock.peers[peer]
        condition.lost, condition.frozen, condition.owed = until == inf, 0.0, 0.0
        condition.incarnation += 1
        condition.away = None if condition.lost else (one.up, one.down)
        self._frozen.discard(peer)
        self._clock.kill(peer)

    # -- a killed peer that comes back

    def others(self, peer: int) -> list[int]:
        """Return the peers that a peer talks to if it comes back now: they are there, and not lost."""
        return [
            other
            for other in self._clock.conversations.neighbours(peer)
            if other in self._clock.peers and not self._conditions[other].lost
        ]

    def reaches_others(self, peer: int) -> float:
        """Return the time from which on a killed peer can greet the others, and they answer."""
        away = self._conditions[peer].away
        assert away is not None
        others = self.others(peer)
        links_up = (self._clock.peers[other].up.down for other in others)
        thaws = (self._conditions[other].frozen for other in others)
        return max(away[0].down, *links_up, *thaws, 0.0)

    def revive(self, peer: int, others: Sequence[int]) -> None:
        """Let a killed peer take part again, which has connected to others."""
        condition = self._conditions[peer]
        assert condition.away is not None
        up, down = condition.away
        condition.away = None
        up.forget(self._clock.now)
        down.forget(self._clock.now)
        self._clock.come_back(peer, others, up, down)
        self._slow_link(peer)

    def give_up(self, peer: int) -> None:
        """Note that a killed peer does not come back."""
        self._conditions[peer].lost, self._conditions[peer].away = True, None
