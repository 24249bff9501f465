"""A run that is spread over several hosts: who is where, and what the agent of each is to make."""

import contextlib
import os
import secrets
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TypedDict

from testbed.device_names import HOME_HOST
from testbed.doctor.requirements import check_room
from testbed.errors import HostError, SpecError
from testbed.messages.planned_nodes import DataclassFields, PlannedNetwork
from testbed.network.links import Link
from testbed.network.underlay import MOST_NETWORKS, OUTER_MTU, longest_packet, own_addresses
from testbed.nodes import linux
from testbed.orchestrator.agent.process import AgentProcess, R
from testbed.orchestrator.hosts.agent_service import secret_in
from testbed.orchestrator.hosts.agents_of_hosts import AgentsOfHosts
from testbed.orchestrator.hosts.hosts_file import HostsFile, patterns
from testbed.orchestrator.hosts.inquiries import HostClock
from testbed.orchestrator.hosts.lacking import lacks
from testbed.orchestrator.hosts.member import HostTable, Member, own_processors
from testbed.orchestrator.hosts.underlay_delay import (
    CrossingDirection,
    less_underlay,
    recorded,
    remarks,
)
from testbed.orchestrator.run_notes import P, RunNotes
from testbed.planning.plans import AnyPlan

_PATIENCE_AT_END = 2.0
"""Seconds in which a host must answer after the run: it may be what has ended it."""


def secret_of(file: HostsFile) -> bytes:
    """Return the secret of the hosts.

    Raises:
        SpecError: there is none, or it is too short.
    """
    return file.made_secret or secret_in(file.secret_file)


def problem_of(plan: AnyPlan) -> str | None:
    """Return why a run cannot be spread over hosts; None if it can."""
    found = {
        "a simulation has no devices to spread: `testbed sweep --ray` spreads simulations": (
            plan.spec.engine != "emulation"
        ),
        "only nodes of namespaces are spread so far, no containers": (
            plan.spec.devices.runtime != "namespaces"
        ),
    }
    return next((problem for problem, is_so in found.items() if is_so), None)


def check_kind(plan: AnyPlan) -> None:
    """Check that a run can be spread over hosts.

    Raises:
        SpecError: it cannot.
    """
    if (problem := problem_of(plan)) is not None:
        raise SpecError(f"--hosts: {problem}")


def check(file: HostsFile, plans: Sequence[AnyPlan]) -> None:
    """Check, before anything is started, that runs can be spread and that all hosts answer.

    Raises:
        SpecError: a run cannot be.
        HostError: a host does not answer, cannot take part, or lacks what programs need; or this one
            has no room for its devices.
    """
    for plan in plans:
        check_kind(plan)
    if os.geteuid() != 0:
        raise HostError("--hosts: links between hosts need root, on this host as on the others")
    members = _called(file)
    try:
        wall = any(plan.spec.clock == "wall" for plan in plans)
        delays = _delays(file, members) if wall else {}
        for plan in plans:
            spread = Spread.over(file, plan, members, delays)
            check_room(plan, len(spread.place))
            if (lack := next(spread.lacks(), None)) is not None:
                raise HostError(lack)
    finally:
        for member in members.values():
            member.connection.socket.close()


def _called(file: HostsFile) -> dict[str, Member]:
    if file.underlay not in (own := own_addresses()):
        raise SpecError(
            f"--hosts: underlay: {file.underlay} is none of this host's addresses: {', '.join(own)}"
        )
    secret = secret_of(file)
    found = {host.name: Member.called(host, secret) for host in file.others}
    with_network = {linux.namespace_id("net"): "this host"}
    for member in found.values():
        before = with_network.setdefault(member.network, member.host.described)
        if before != member.host.described:
            raise HostError(
                f"{member.host.described}: its network is that of {before}, and both ends of a link "
                "that crosses cannot be there: start its agent on another machine, or in a network "
                "namespace of its own"
            )
    return found


def _delays(file: HostsFile, members: Mapping[str, Member]) -> dict[str, float]:
    """Return the delay of the way to each other host, in seconds.

    Raises:
        HostError: there is no way to one.
    """
    ways = {name: one.way_from(file.underlay) for name, one in members.items()}
    return {name: way.round_trip / 2 for name, way in ways.items()}


def placed(file: HostsFile, plan: AnyPlan, processors: Mapping[str, int]) -> dict[str, str]:
    """Return the host of each device that is not at home; one on a server's machine is.

    Args:
        processors: of each host by name.

    Raises:
        SpecError: the file places what there is not, or what stays with a server.
    """
    # The evaluated peer is at home: what it reports is compared with what is counted there.
    elsewhere = [one for one in plan.workers if one != plan.observed]
    place = file.placed(elsewhere, processors)
    for server, worker in plan.local.items():
        if place.pop(worker, None) and file.place:
            raise SpecError(
                f"place: {worker} is on the machine of {server}, and stays on this host"
            )
    return place


class SpreadRecord(TypedDict):
    """The manifest's entries: each other host by its name, and the directions of ``recorded``."""

    hosts: Mapping[str, Mapping[str, object]]
    underlay: Sequence[Mapping[str, float | str]]


@dataclass(frozen=True)
class Spread:
    """The hosts of one run.

    Attributes:
        members: the other hosts, which have been called.
        place: the host of each device that is not at home.
        first: the VXLAN network identifier of the first link.
        delays: of the way to each other host, in seconds; empty under the virtual clock.
    """

    file: HostsFile
    plan: AnyPlan
    members: Mapping[str, Member]
    place: Mapping[str, str]
    first: int
    delays: Mapping[str, float]

    @classmethod
    def called(cls, file: HostsFile, plan: AnyPlan) -> "Spread":
        """Call the hosts of a run, and place its devices.

        Raises:
            HostError, SpecError: a host does not answer, or the file places what there is not, or what
                stays with a server.
        """
        members = _called(file)
        wall = plan.spec.clock == "wall"
        return cls.over(file, plan, members, _delays(file, members) if wall else {})

    @classmethod
    def over(
        cls,
        file: HostsFile,
        plan: AnyPlan,
        members: Mapping[str, Member],
        delays: Mapping[str, float],
    ) -> "Spread":
        """Place a run's devices on hosts that have been called.

        Raises:
            HostError, SpecError: see ``called``.
        """
        processors = {name: one.processors for name, one in members.items()}
        place = placed(file, plan, {HOME_HOST: own_processors(), **processors})
        # At random: two runs that share a host must not have a link's number in common.
        spread = cls(file, plan, members, place, secrets.randbelow(MOST_NETWORKS), delays)
        problems = (one.problem for one in spread.crossing_directions)
        if not file.accept_underlay and (problem := next(filter(None, problems), None)):
            raise HostError(problem)
        return spread

    def devices(self, host: str) -> list[int]:
        """Return the numbers of the devices on another host."""
        return [number for one, number in self.plan.workers.items() if self.place.get(one) == host]

    @property
    def has_orders(self) -> bool:
        """True if devices get orders: from the virtual clock, or from a coordinator."""
        return self.plan.spec.clock == "virtual" or not self.plan.served

    def lacks(self) -> Iterator[str]:
        """Yield a sentence on each thing that a run needs and another host lacks.

        Raises:
            DataError: this host lacks the data.
            HostError: a host does not answer, or there is no way to it for links.
        """
        for name in self.longest_packets:
            yield from lacks(self.plan, self.members[name], self.placed_on(name))

    @cached_property
    def _host_of_node(self) -> Mapping[str, str]:
        network = self.plan.network
        return {
            node: self.place.get(node, HOME_HOST) for node in (*network.devices, *network.routers)
        }

    def placed_on(self, host: str) -> list[str]:
        """Return the workers or peers on a host, in the order of their numbers."""
        return [one for one in self.plan.workers if self.place.get(one, HOME_HOST) == host]

    def table_of(self, host: str) -> HostTable:
        """Return what ``testbed exec`` has to know of another host."""
        member = self.members[host]
        secret = member.secret.decode()
        return HostTable(member.host, secret, self.first, self.placed_on(host))

    def agents(
        self,
        log: Path,
        reports: R,
        handed: Collection[int] = (),
        orders: Mapping[str, Mapping[int, socket.socket]] | None = None,
        *,
        paces: int = 0,
        keeps_states: bool = False,
    ) -> AgentsOfHosts[R]:
        """Start an agent on each host.

        Args:
            log, reports: as ``AgentProcess`` takes them.
            handed: descriptors that the roles of this host inherit from its agent.
            orders: the ends of the devices on each other host that get orders, by their numbers.
            paces: the number of factors that devices share.
            keeps_states: True if devices keep states of their own in files.
        """
        others = {
            name: AgentProcess(
                *(log, (), reports),
                partial(
                    member.begin,
                    orders[name] if orders else {},
                    paces=paces,
                    states=self.devices(name) if keeps_states else [],
                    table=self.table_of(name),
                ),
            )
            for name, member in self.members.items()
        }
        home = AgentProcess(log, handed, reports)
        return AgentsOfHosts(home, others, self.place, self.behind)

    def crosses(self, link: Link) -> bool:
        """Return True if a link's ends are on two hosts."""
        return self._host_of_node[link.node] != self._host_of_node[link.router]

    @cached_property
    def crossing_directions(self) -> list[CrossingDirection]:
        """Each direction of each link that crosses, under the wall clock; see ``underlay_delay``."""
        found = []
        for link in self.plan.links if self.delays else ():
            if self.crosses(link):
                host = self._host_of_node[link.node] or self._host_of_node[link.router]
                for up, shape in ((True, link.uplink), (False, link.downlink)):
                    asked = (shape.delay, shape.jitter, self.delays[host])
                    found.append(CrossingDirection(self._kind(link), up, host, *asked))
        return found

    def _kind(self, link: Link) -> str:
        """Return which links are like one, in words."""
        plan = self.plan
        if plan.spec.devices.classes and link.node in plan.workers:
            number = plan.class_of[plan.workers[link.node]]
            return f"the devices of class {plan.spec.devices.classes[number].name}"
        return "the workers" if plan.served else "the peers"

    def _address(self, host: str) -> str:
        return self.members[host].host.underlay if host != HOME_HOST else self.file.underlay

    def part(self, content: PlannedNetwork, host: str) -> PlannedNetwork:
        """Return what the agent of a host is to make of a network."""
        at = self._host_of_node
        part: PlannedNetwork = {
            **content,
            "devices": [
                one for one in content["devices"] if self.place.get(one["name"], HOME_HOST) == host
            ],
            "sockets": content.get("sockets", ()) if host == HOME_HOST else (),
            "measured": [
                one for one in content["measured"] if self.place.get(one, HOME_HOST) == host
            ],
            "probe": [
                one
                for one in content["probe"]
                if host == HOME_HOST and one["node"] not in self.place
            ],
            "timed": content["timed"] and host == HOME_HOST,
            "traffic": {
                **content["traffic"],
                "capture": content["traffic"]["capture"] and host == HOME_HOST,
            },
            "underlay": {
                "address": self._address(host),
                "elsewhere": {node: self._address(on) for node, on in at.items() if on != host},
                "first": self.first,
                "port": self.file.port,
            },
        }
        if self.delays:
            part["links"] = [self._less_underlay(link) for link in self.plan.links]
            # Routes are chosen by what is asked.
            part["delays"] = content["delays"] or [
                (link.uplink.delay, link.downlink.delay) for link in self.plan.links
            ]
        return part

    def _less_underlay(self, link: Link) -> DataclassFields:
        fields = asdict(link)
        if self.crosses(link):
            delay = self.delays[self._host_of_node[link.node] or self._host_of_node[link.router]]
            for way in ("uplink", "downlink"):
                fields[way] = less_underlay(fields[way], delay)
        return fields

    @property
    def sampled(self) -> dict[str, list[int]]:
        """By host, the places of the links whose counters its agent samples; see ``Observation``."""
        counted = {*self.plan.counted, *self.plan.aggregators}
        found: dict[str, list[int]] = {host: [] for host in (HOME_HOST, *self.members)}
        for number, link in enumerate(self.plan.links):
            end = link.router if link.node in counted else link.node
            found[self._host_of_node[end]].append(number)
        return found

    @property
    def behind(self) -> dict[str, float]:
        """By how many seconds the CLOCK_MONOTONIC of each other host is behind this host's."""
        return {name: one.clock.behind for name, one in self.members.items()}

    def behind_of(self, device: str) -> float:
        """Return the same of the host of a device."""
        return self.behind.get(self.place.get(device, HOME_HOST), 0.0)

    def clocks_now(self) -> dict[str, HostClock]:
        """Ask each other host for its clocks anew; one that does not answer is left out."""
        found = {}
        for name, one in self.members.items():
            with contextlib.suppress(HostError):
                member = Member.called(one.host, one.secret, patience=_PATIENCE_AT_END)
                found[name] = member.clock
                member.connection.socket.close()
        return found

    def record(self, at_end: Mapping[str, HostClock] | None = None) -> SpreadRecord:
        """Return the manifest's entries.

        Args:
            at_end: the clocks at the end of the run; None before it.
        """
        ends = at_end or {}
        hosts = {
            name: {
                "devices": len(self.placed_on(name)),
                "names": patterns(self.placed_on(name)),
                "processors": one.processors,
                "memory": one.memory,
                "delay": self.delays.get(name),
                "clock": asdict(one.clock),
                "clock_at_end": asdict(ends[name]) if name in ends else None,
            }
            for name, one in self.members.items()
        }
        return {"hosts": hosts, "underlay": recorded(self.crossing_directions)}

    @cached_property
    def longest_packets(self) -> Mapping[str, int]:
        """Bytes of the longest packet that the kernel sends to each other host that has devices.

        Raises:
            HostError: this host has no way there from its address in the underlay.
        """
        found = {}
        for host in sorted({*self.place.values()} - {HOME_HOST}):
            here, there = self.file.underlay, self._address(host)
            try:
                found[host] = longest_packet(here, there)
            except OSError as error:
                raise HostError(
                    f"underlay: there is no way from {here} to {there}, host {host}: {error.strerror}"
                ) from error
        return found

    def remarks_on_packets(self) -> Iterator[str]:
        """Yield a sentence on each way that has no room for a link's longest packet."""
        for host, longest in self.longest_packets.items():
            if longest < OUTER_MTU:
                yield (
                    f"the way to host {host} carries packets of {longest:,} bytes: a full packet of a "
                    f"link that crosses has {OUTER_MTU:,}, and travels as two; TCP then acknowledges "
                    "more often, so that there are more wire bytes than on one host (docs/hosts.md)"
                )

    def note_begin(self, notes: RunNotes[P]) -> None:
        """Note in a run's manifest who is where, and warn of what links cannot have."""
        notes.log.note(**self.record())
        for text in (*remarks(self.crossing_directions), *self.remarks_on_packets()):
            notes.event("warning", text, None)

    def note_end(self, notes: RunNotes[P]) -> None:
        """Note the other hosts' clocks at the end of a run; warn of them under the wall clock."""
        at_end = self.clocks_now()
        notes.log.note(**self.record(at_end))
        for name, one in self.members.items() if self.delays else ():
            for text in one.clock.remarks(name, at_end.get(name)):
                notes.event("warning", text, None)


def channels_of_orders(numbers: Sequence[int]) -> dict[int, tuple[socket.socket, socket.socket]]:
    """Make the channels of orders of devices on another host: the clock's end, and the device's."""
    return {number: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for number in numbers}
