"""Flows that share links: the rate of each transfer under the virtual clock, max-min fair.

A *flow* is a message on its way over the links of a route. All flows on a link share its rate: no flow
can have more without a flow that has no more than it having less (max-min fairness, the fluid model of
TCP in SimGrid; Bertsekas and Gallager, Data Networks, §6.5.2). A rate only changes when a flow begins
or ends or a link changes, so the end of each flow is known until then.

What keeps this cheap: flows whose rates are equal whatever happens form one *group*, and a group
keeps the bits that each of its flows has been served since the group began. When a flow begins or
ends, only those groups are computed anew that share a full link with it, directly or over other
groups. A flow that has its links to itself never changes another one, and its end is its begin plus its
bits divided by the smallest rate, to the bit.

A flow may have a *companion*: traffic of the same two devices that does not yield. Both are in one
queue, so they share what max-min fairness gives them, and the flow has what its companion leaves. A
flow over a link with a rate of 0 is its companion alone, and never ends.
"""

import heapq
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from testbed.checkpoints.stateful import Stateful
from testbed.clock.background_rates import taken

_ROUNDING = 1e-9
"""Relative excess of a link's flows over its rate that is put down to rounding."""


@dataclass(slots=True)
class _Group:
    """Flows whose rates are always equal.

    Attributes:
        cap: the most that each may have, in bit/s, with its companion: the smallest rate on its route,
            and what the companion wants.
        links: the links of the route on which other flows may be, too.
        rate: of each flow with its companion, in bit/s.
        at: the time of ``served``, in seconds.
        served: the bits that a flow which was there from the group's beginning has been served.
        beside: what the companion of each wants, in bit/s; 0: none has one.
        passed: the bits that a companion which was there from the beginning has been served.
        ends: for each flow the value of ``served`` at which it ends, with its number; a heap.
    """

    number: int
    cap: float
    links: tuple[int, ...]
    at: float
    rate: float = 0.0
    served: float = 0.0
    ends: list[tuple[float, int]] = field(default_factory=list)
    members: int = 0
    beside: float = 0.0
    passed: float = 0.0

    @property
    def own_rate(self) -> float:
        """The rate of each flow without its companion, in bit/s."""
        return self.rate - self.companion_rate if self.beside else self.rate

    @property
    def companion_rate(self) -> float:
        if self.cap == self.beside:  # there is nothing else
            return self.rate
        return taken(self.rate, self.beside)

    def serve(self, now: float) -> None:
        """Bring ``served`` and ``passed`` up to a time."""
        if self.rate > 0 and now > self.at:
            self.served += self.own_rate * (now - self.at)
            if self.beside:
                self.passed += self.companion_rate * (now - self.at)
        self.at = now


@dataclass(slots=True)
class _Flow:
    """A flow; ``until`` is the value of its group's ``served`` at which it ends.

    Of its companion ``passed`` are the bits in earlier groups, and ``since`` is the value of its
    group's ``passed`` at which it joined.
    """

    route: tuple[int, ...]
    group: _Group
    bits: float
    until: float
    passed: float = 0.0
    since: float = 0.0


STORED: tuple[type, ...] = (_Group, _Flow)
"""The classes in a state, besides plain values and arrays."""


class Flows(Stateful):
    """The flows of a network.

    Links are numbered from 0; each is one direction. A rate is in bit/s; ``math.inf`` is no limit, and
    on a link with a rate of 0 flows stand still.
    """

    def __init__(self, rates: Sequence[float], shared: Collection[int]) -> None:
        """Set up links that carry no flow yet.

        Args:
            shared: the links that may have several flows at a time; flows on another link are the
                caller's to send one after the other.
        """
        self._rates = [float(rate) for rate in rates]
        self._shared = frozenset(shared)
        self._flows: dict[int, _Flow] = {}
        self._began = 0
        self._groups: dict[tuple[float, tuple[int, ...], int, float], _Group] = {}
        self._made = 0
        self._on: dict[int, dict[int, _Group]] = {link: {} for link in self._shared}
        # The links that limit some flow: they carry as much as they can.
        self._full: set[int] = set()
        # The end of each group's first flow, with the group's number; entries may be out of date.
        self._ends: list[tuple[float, int, int]] = []

    def __len__(self) -> int:
        return len(self._flows)

    # -- what the caller does

    def begin(self, now: float, route: Sequence[int], bits: float, *, beside: float = 0.0) -> int:
        """Start a flow; return its number. Numbers increase from 0.

        Args:
            now: in seconds; never less than in an earlier call of any method.
            route: the links that it takes, at least one.
            bits: what it sends, headers included.
            beside: what its companion wants, in bit/s; 0: it has none.
        """
        number = self._began
        self._began += 1
        self._join(now, number, tuple(route), float(bits), beside=beside)
        self._share(now, self._flows[number].group)
        return number

    def next_end(self) -> tuple[float, int] | None:
        """Return when the next flow ends, and its number; None if none ever does.

        Of several that end at one moment, the one that began first is returned. It goes on being the
        next until ``end`` is called.
        """
        while self._ends:
            time, flow, number = self._ends[0]
            if self._is_valid(time, flow, number):
                return time, flow
            heapq.heappop(self._ends)
        return None

    def rate(self, flow: int) -> float:
        """Return the present rate of a flow, in bit/s."""
        return self._flows[flow].group.own_rate

    def passed(self, now: float, flow: int) -> float:
        """Return the bits of a flow that have been sent so far; nothing changes by this."""
        found = self._flows[flow]
        served = found.group.served + found.group.own_rate * max(0.0, now - found.group.at)
        return found.bits - max(0.0, found.until - served)

    def passed_beside(self, now: float, flow: int) -> float:
        """Return the bits of a flow's companion that have been sent so far; nothing changes by this."""
        found = self._flows[flow]
        group = found.group
        passed = group.passed - found.since
        if group.beside:
            passed += group.companion_rate * max(0.0, now - group.at)
        return found.passed + passed

    def set_beside(self, now: float, flow: int, beside: float) -> None:
        """Change what a flow's companion wants, in bit/s."""
        if self._flows[flow].group.beside != beside:
            self._share(now, *self._move(now, flow, beside))

    def end(self, now: float, flow: int) -> None:
        """Remove a flow: it has ended, or is given up."""
        self._share(now, self._leave(now, flow))

    def resize(self, flow: int, bits: float) -> None:
        """Give a flow the bits that it really has: at least as many as it was thought to have."""
        found = self._flows[flow]
        found.until += bits - found.bits
        found.bits = float(bits)
        heapq.heappush(found.group.ends, (found.until, flow))
        self._announce(found.group)

    def change(
        self, now: float, link: int, rate: float, among: Sequence[int] | None = None
    ) -> None:
        """Change the rate of a link.

        Args:
            among: the flows that may be on it, if the caller knows them; None: all.
        """
        if self._rates[link] == rate:
            return
        self._rates[link] = float(rate)
        groups = []
        flows = list(self._flows) if among is None else among
        for number in [n for n in flows if link in self._flows[n].route]:
            groups += self._move(now, number, self._flows[number].group.beside)
        self._share(now, *groups)

    # -- groups

    def _move(self, now: float, number: int, beside: float) -> list[_Group]:
        """Have a flow be in the group of its kind, as this is now; return its groups."""
        found = self._flows[number]
        left = self._left(now, found)
        before = self._leave(now, number)
        self._join(now, number, found.route, found.bits, left, beside=beside)
        moved = self._flows[number]
        moved.passed = found.passed + (before.passed - found.since)
        return [before, moved.group]

    def _join(
        self,
        now: float,
        number: int,
        route: tuple[int, ...],
        bits: float,
        left: float | None = None,
        *,
        beside: float,
    ) -> None:
        """Add a flow to the group of its kind; ``left`` bits are still to be sent, all without it."""
        cap = min(self._rates[link] for link in route) + beside
        links = tuple(link for link in route if link in self._shared)
        # A flow that shares nothing is a group of its own, which begins at 0 and so ends exactly.
        kind = cap, links, -1 if links else number, beside
        group = self._groups.get(kind)
        if group is None:
            group = self._groups[kind] = _Group(self._made, cap, links, at=now, beside=beside)
            self._made += 1
            for link in links:
                self._on[link][group.number] = group
        group.serve(now)
        group.members += 1
        until = group.served + (bits if left is None else left)
        flow = _Flow(route, group, bits, until, since=group.passed)
        self._flows[number] = flow
        heapq.heappush(group.ends, (flow.until, number))

    def _leave(self, now: float, number: int) -> _Group:
        group = self._flows.pop(number).group
        group.serve(now)
        group.members -= 1
        if not group.members:
            for link in group.links:
                del self._on[link][group.number]
            place = -1 if group.links else number
            del self._groups[group.cap, group.links, place, group.beside]
        return group

    def _left(self, now: float, flow: _Flow) -> float:
        flow.group.serve(now)
        return max(0.0, flow.until - flow.group.served)

    def _is_valid(self, time: float, flow: int, group: int) -> bool:
        """Return True if a flow is in a group and ends at a time, as was announced."""
        found = self._flows.get(flow)
        return found is not None and found.group.number == group and self._end_of(flow) == time

    def _end_of(self, flow: int) -> float:
        found = self._flows[flow]
        group = found.group
        left = max(0.0, found.until - group.served)
        if left == 0.0:
            return group.at
        rate = group.own_rate
        return group.at + left / rate if rate > 0 else math.inf

    def _announce(self, group: _Group) -> None:
        """Put the end of a group's first flow among the ends."""
        if len(self._ends) > 4 * len(self._groups) + 64:
            # The end of a flow is often announced twice: its rate changed by rounding only.
            self._ends = [entry for entry in set(self._ends) if self._is_valid(*entry)]
            heapq.heapify(self._ends)
        while group.ends:
            until, flow = group.ends[0]
            found = self._flows.get(flow)
            if found is None or found.group is not group or found.until != until:
                heapq.heappop(group.ends)
                continue
            time = self._end_of(flow)
            if time < math.inf:
                heapq.heappush(self._ends, (time, flow, group.number))
            return

    # -- rates

    def _share(self, now: float, *changed: _Group) -> None:
        """Compute the rates that follow from a change of some groups, and announce the new ends.

        Groups are computed together that are on a link which was full or will be. Others keep their
        rates: what limits them is their cap, or a link that is full of groups like them.
        """
        may_be_full = set(self._full)
        while True:
            groups, links = self._reached(changed, may_be_full)
            rates, full = self._fill(groups, links)
            overfull = self._overfull(groups, rates, links)
            if not overfull:
                break
            may_be_full |= overfull
        self._full.difference_update(links)
        self._full |= full
        other_flows = {group.number for group in changed}
        for group in groups:
            new_rate = rates[group.number] != group.rate
            if new_rate:
                group.serve(now)
                group.rate = rates[group.number]
            if new_rate or group.number in other_flows:
                self._announce(group)

    def _reached(
        self, changed: Sequence[_Group], may_be_full: Collection[int]
    ) -> tuple[list[_Group], list[int]]:
        """Return the groups that changed ones reach over links that may be full, and these links."""
        groups = {group.number: group for group in changed if group.members}
        waiting = [link for group in changed for link in group.links if link in may_be_full]
        links = set(waiting)
        while waiting:
            for group in self._on[waiting.pop()].values():
                if group.number not in groups:
                    groups[group.number] = group
                    further = [n for n in group.links if n in may_be_full and n not in links]
                    waiting += further
                    links.update(further)
        # A changed group without members reaches others, but is computed no more.
        return [groups[number] for number in sorted(groups)], sorted(links)

    def _overfull(
        self, groups: Sequence[_Group], rates: Mapping[int, float], links: Collection[int]
    ) -> set[int]:
        """Return the links, besides those that were filled, that cannot carry these rates."""
        others = {link for group in groups for link in group.links}.difference(links)
        return {
            link
            for link in others
            if sum(
                group.members * rates.get(group.number, group.rate)
                for group in self._on[link].values()
            )
            > self._rates[link] * (1 + _ROUNDING)
        }

    def _fill(
        self, groups: Sequence[_Group], links: Sequence[int]
    ) -> tuple[dict[int, float], set[int]]:
        """Share out the rates of some links to all of their groups (progressive filling).

        Returns:
            The groups' rates by their numbers, and the links that are full.
        """
        room = {link: self._rates[link] for link in links}
        count = dict.fromkeys(links, 0)
        for group in groups:
            for link in group.links:
                if link in count:
                    count[link] += group.members
        shares = [(room[link] / count[link], link) for link in links if count[link]]
        heapq.heapify(shares)
        by_cap = sorted(groups, key=lambda group: (group.cap, group.number), reverse=True)
        rates: dict[int, float] = {}
        full: set[int] = set()

        def settle(group: _Group, rate: float) -> None:
            rates[group.number] = rate
            for link in group.links:
                if link in count:
                    room[link] = max(0.0, room[link] - rate * group.members)
                    count[link] -= group.members

        while by_cap:
            if by_cap[-1].number in rates:
                by_cap.pop()
                continue
            # The share of a link only grows while others are settled, so an old entry is too small.
            while shares:
                share, link = shares[0]
                if not count[link]:
                    heapq.heappop(shares)
                elif room[link] / count[link] > share:
                    heapq.heapreplace(shares, (room[link] / count[link], link))
                else:
                    break
            if not shares or by_cap[-1].cap <= shares[0][0]:
                group = by_cap.pop()
                settle(group, group.cap)
                continue
            share, link = shares[0]
            full.add(link)
            for number in sorted(self._on[link]):
                if number not in rates:
                    settle(self._on[link][number], share)
        return rates, full
