"""A run that is spread over several hosts: who is where, and what the agent of each is to make."""

import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from testbed.errors import SpecError
from testbed.experiment.units import format_rate
from testbed.network.links import Link
from testbed.network.underlay import MOST_NETWORKS
from testbed.number_text import as_number
from testbed.orchestrator.hosts.agent_service import secret_in
from testbed.orchestrator.hosts.agents_of_hosts import HOME
from testbed.orchestrator.hosts.hosts_file import HostsFile
from testbed.orchestrator.hosts.member import Member, own_processors
from testbed.planning.linked_plan import LinkedPlan
from testbed.planning.plan import Plan


def problem_of(plan: LinkedPlan) -> str | None:
    """Return why a run cannot be spread over hosts; None if it can."""
    if not isinstance(plan, Plan):
        return "programs run on one host so far"
    found = {
        "a simulation has no devices to spread: `testbed sweep --ray` spreads simulations": (
            plan.spec.engine != "emulation"
        ),
        "only nodes of namespaces are spread so far, no containers": (
            plan.spec.devices.runtime != "namespaces"
        ),
        "faults, arrivals and departures are of devices on one host so far": bool(
            plan.settings.faults.rules
        ),
        "servers on workers' machines are not spread so far": bool(plan.machines),
        "background traffic is of one host so far": bool(plan.background),
    }
    return next((problem for problem, is_so in found.items() if is_so), None)


def check(file: HostsFile, plans: Sequence[LinkedPlan]) -> None:
    """Check, before anything is started, that runs can be spread and that all hosts answer.

    Raises:
        SpecError: a run cannot be.
        HostError: a host does not answer, or cannot take part.
    """
    for plan in plans:
        if (problem := problem_of(plan)) is not None:
            raise SpecError(f"--hosts: {problem}")
    secret = secret_in(file.secret_file)
    for host in file.others:
        Member.called(host, secret).connection.socket.close()


@dataclass(frozen=True)
class Spread:
    """The hosts of one run.

    Attributes:
        file: what was asked for.
        members: the other hosts, which have been called.
        place: the host of each device that is not at home.
        first: the VXLAN network identifier of the first link.
    """

    file: HostsFile
    plan: Plan
    members: Mapping[str, Member]
    place: Mapping[str, str]
    first: int

    @classmethod
    def called(cls, file: HostsFile, plan: Plan) -> "Spread":
        """Call the hosts of a run, and place its devices.

        Raises:
            HostError, SpecError: a host does not answer, or the file places what there is not.
        """
        secret = secret_in(file.secret_file)
        members = {host.name: Member.called(host, secret) for host in file.others}
        processors = {name: one.processors for name, one in members.items()}
        place = file.placed([*plan.workers], {HOME: own_processors(), **processors})
        # At random: two runs that share a host must not have a link's number in common.
        return cls(file, plan, members, place, secrets.randbelow(MOST_NETWORKS))

    def orders(self, host: str) -> list[int]:
        """Return the numbers of the devices on another host that get orders."""
        return [number for one, number in self.plan.workers.items() if self.place.get(one) == host]

    @property
    def has_orders(self) -> bool:
        """True if devices get orders: from the virtual clock, or from a coordinator."""
        return self.plan.spec.clock == "virtual" or not self.plan.served

    @cached_property
    def _host_of_node(self) -> Mapping[str, str]:
        network = self.plan.network
        return {node: self.place.get(node, HOME) for node in (*network.devices, *network.routers)}

    def crosses(self, link: Link) -> bool:
        """Return True if a link's ends are on two hosts."""
        return self._host_of_node[link.node] != self._host_of_node[link.router]

    def _address(self, host: str) -> str:
        return self.members[host].host.underlay if host != HOME else self.file.underlay

    def part(self, content: Mapping[str, Any], host: str) -> dict[str, Any]:
        """Return what the agent of a host is to make of a network.

        Args:
            content: the whole network's, as ``planning.node_plan.network`` returns it.
        """
        at = self._host_of_node
        own = {
            "devices": [
                one for one in content["devices"] if self.place.get(one["name"], HOME) == host
            ],
            "measured": [one for one in content["measured"] if self.place.get(one, HOME) == host],
            "probe": [
                one for one in content["probe"] if host == HOME and one["node"] not in self.place
            ],
            "timed": content["timed"] and host == HOME,
            "underlay": {
                "address": self._address(host),
                "elsewhere": {node: self._address(on) for node, on in at.items() if on != host},
                "first": self.first,
                "port": self.file.port,
            },
        }
        traffic = content["traffic"] | {"capture": content["traffic"]["capture"] and host == HOME}
        return {**content, **own, "traffic": traffic}

    @property
    def sampled(self) -> dict[str, list[int]]:
        """By host, the places of the links whose counters its agent samples; see ``Observation``."""
        counted = {*self.plan.counted, *self.plan.aggregators}
        found: dict[str, list[int]] = {host: [] for host in (HOME, *self.members)}
        for number, link in enumerate(self.plan.links):
            end = link.router if link.node in counted else link.node
            found[self._host_of_node[end]].append(number)
        return found

    @property
    def behind(self) -> dict[str, float]:
        """By how many seconds the CLOCK_MONOTONIC of each other host is behind this host's."""
        return {name: one.clock.behind for name, one in self.members.items()}

    def record(self) -> dict[str, Any]:
        """Return the manifest's entry."""
        return {
            name: {
                "devices": sum(host == name for host in self.place.values()),
                "processors": one.processors,
                "memory": one.memory,
                "clock_behind": one.clock.behind,
                "clock_error": one.clock.error,
            }
            for name, one in self.members.items()
        }


def described(file: HostsFile, plan: Plan) -> Iterator[str]:
    """Yield lines that say who is where, and what crosses.

    Raises:
        HostError, SpecError: as for ``Spread.called``.
    """
    spread = Spread.called(file, plan)
    for member in spread.members.values():
        member.connection.socket.close()
    part = "worker" if plan.served else "peer"
    hosts = {HOME: "this host", **{name: f"host {name}" for name in spread.members}}
    for host, text in hosts.items():
        own = [one for one in plan.workers if spread.place.get(one, HOME) == host]
        what = "routers, servers, evaluator, " if host == HOME else ""
        names = f" ({own[0]} to {own[-1]})" if len(own) > 1 else f" ({own[0]})" if own else ""
        yield f"{text}: {what}{as_number(len(own), part)}{names}"
    crossing = [link for link in plan.links if spread.crosses(link)]
    for way, shapes in (
        ("to this host", [link.uplink for link in crossing]),
        ("from this host", [link.downlink for link in crossing]),
    ):
        rates = [shape.rate for shape in shapes]
        total = format_rate(sum(filter(None, rates))) if all(rates) else "no limit"
        yield f"{as_number(len(crossing), 'link')} between hosts, {way} together: {total}"


def channels_of_orders(numbers: Sequence[int]) -> dict[int, tuple[socket.socket, socket.socket]]:
    """Make the channels of orders of devices on another host: the clock's end, and the device's."""
    return {number: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for number in numbers}
