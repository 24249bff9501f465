"""The outline of a spread run, which ``testbed plan --hosts`` prints."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from testbed.device_names import HOME_HOST
from testbed.number_text import as_delay, as_number
from testbed.orchestrator.hosts.hosts_file import HostsFile, patterns
from testbed.orchestrator.hosts.spread import Spread, check_kind
from testbed.planning.plan import Plan
from testbed.planning.plans import AnyPlan
from testbed.units import format_rate


@dataclass(frozen=True, slots=True)
class SpreadOutline:
    """The devices of each host, the links between hosts, and what these hosts lack for a run.

    Attributes:
        at_home: what is on this host besides workers or peers.
        here: the workers or peers on this host.
        devices: those on each other host by its name.
        part: what these are, in a word.
        crossing: how many links cross.
        to_home, from_home: the sums of their rates in bit/s; None if one of them has no limit.
        delays: of the way to each other host, in seconds; empty under the virtual clock.
        problems: why these hosts cannot run it, a sentence each.
        remarks: what it would be warned of, a sentence each.
    """

    at_home: Sequence[str]
    here: Sequence[str]
    devices: Mapping[str, Sequence[str]]
    part: str
    crossing: int
    to_home: int | None
    from_home: int | None
    delays: Mapping[str, float]
    problems: Sequence[str]
    remarks: Sequence[str]

    def lines(self) -> Iterator[str]:
        """Yield the same in words."""
        home = f"this host: {', '.join(self.at_home)},"
        others = {f"host {host}:": own for host, own in self.devices.items()}
        for text, own in {home: self.here, **others}.items():
            names = f" ({', '.join(patterns(own))})" if own else ""
            yield f"{text} {as_number(len(own), self.part)}{names}"
        links = as_number(self.crossing, "link")
        for way, rate in (("to", self.to_home), ("from", self.from_home)):
            total = "no limit" if rate is None else format_rate(rate)
            yield f"{links} between hosts, {way} this host together: {total}"
        for host, delay in self.delays.items():
            yield f"the way to host {host}: {as_delay(delay)}"
        yield from (f"these hosts cannot run it: {one}" for one in self.problems)
        yield from (f"warning: {one}" for one in self.remarks)


def _sum_of_rates(rates: Sequence[int | None]) -> int | None:
    limited = [rate for rate in rates if rate]
    return sum(limited) if len(limited) == len(rates) else None


def outline(file: HostsFile, plan: AnyPlan) -> SpreadOutline:
    """Call the hosts of a run, and return its outline.

    Raises:
        HostError, SpecError: the run cannot be spread, or as for ``Spread.called``.
    """
    check_kind(plan)
    spread = Spread.called(replace(file, accept_underlay=True), plan)
    lacks = [*spread.lacks()]
    for member in spread.members.values():
        member.connection.socket.close()
    at_home = ["routers", "servers", "evaluator"]
    if not isinstance(plan, Plan):
        at_home = ["routers", "server", *(one.name for one in plan.spec.nodes)]
    crossing = [link for link in plan.asked_network.links if spread.crosses(link)]
    slow = [] if file.accept_underlay else [one.problem for one in spread.crossing_directions]
    return SpreadOutline(
        at_home=at_home,
        here=spread.placed_on(HOME_HOST),
        devices={one: spread.placed_on(one) for one in spread.members},
        part="worker" if plan.served else "peer",
        crossing=len(crossing),
        to_home=_sum_of_rates([link.uplink.rate for link in crossing]),
        from_home=_sum_of_rates([link.downlink.rate for link in crossing]),
        delays=spread.delays,
        problems=[*dict.fromkeys(filter(None, slow)), *lacks],
        remarks=[*spread.remarks_on_packets()],
    )
