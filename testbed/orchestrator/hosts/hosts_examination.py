"""``testbed doctor --hosts``: what the doctor finds on each host, and the ways between them.

Each way is filled for a second in each direction, by TCP and by UDP, one way after the other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from typing import Literal

from testbed import number_text as q
from testbed.doctor.findings import Finding
from testbed.errors import HostError
from testbed.json_dataclasses import of_plain
from testbed.network.underlay import OUTER_MTU, PORT
from testbed.orchestrator.hosts.host_paths import examined_here
from testbed.orchestrator.hosts.hosts_file import HostsFile
from testbed.orchestrator.hosts.inquiries import LARGEST_OFFSET, PathMeasured
from testbed.orchestrator.hosts.member import Member
from testbed.orchestrator.hosts.path_datagrams import DatagramsPassed
from testbed.orchestrator.hosts.spread import secret_of

SECONDS = 1.0
"""For how long a way is filled in each direction."""
MOST_LOST = 0.01
"""The share of full packets that a way may lose without a remark."""
THIS_HOST = "this host"


@dataclass(frozen=True, slots=True)
class ExaminedWay:
    """The way between two hosts.

    Attributes:
        measured: None if there is no way.
        problem: why there is none; empty if there is one.
        tunnels: the UDP port of the tunnels.
    """

    source: str
    target: str
    measured: PathMeasured | None
    problem: str = ""
    tunnels: int = PORT

    @property
    def finding(self) -> Finding:
        """It as a finding of the doctor's."""
        what, way = f"{self.source} – {self.target}", self.measured
        if way is None:
            remedy = "let TCP between the hosts through, and UDP to the port of the tunnels"
            return Finding(what, "missing", self.problem, remedy)
        text = (
            f"{q.as_rate(way.there)} there, {q.as_rate(way.back)} back, round trip "
            f"{q.as_delay(way.round_trip)}, packets of {way.mtu:,} bytes, clock "
            f"{1000 * way.clock_behind:+.2f} ± {1000 * way.clock_error:.2f} ms"
        )
        if way.retransmitted:
            text += f", {q.as_number(way.retransmitted, 'packet')} sent again"
        passed = [of_plain(DatagramsPassed, one) for one in way.datagrams]
        rates = [f"{q.as_rate(one.rate)} ({q.as_share(one.lost)} lost)" for one in passed]
        text += f", UDP to port {self.tunnels} {rates[0]} there, {rates[1]} back"
        if others := [one.port for one in passed if one.port != self.tunnels]:
            text += f"; a run has port {self.tunnels}, and {others[0]} was measured in its place"
        if way.mtu < OUTER_MTU:
            text += "; a full packet of a link that crosses is two here"
        state: Literal["ok", "limited", "missing"] = "ok"
        remedies = []
        if not all(one.arrived for one in passed):
            state = "missing"
            remedies.append(self._remedy(passed))
        elif any(one.lost > MOST_LOST for one in passed):
            state = "limited"
            remedies.append("find what limits UDP on the way, or drops fragments")
        if abs(way.clock_behind) - way.clock_error > LARGEST_OFFSET:
            state = "limited" if state == "ok" else state
            remedies.append("set both clocks by NTP or PTP")
        return Finding(what, state, text, "; ".join(remedies))

    def _remedy(self, passed: Sequence[DatagramsPassed]) -> str:
        """Return what to do, as datagrams do not arrive in at least one direction."""
        if all(one.arrived or one.short_arrived for one in passed):
            return (
                f"only short datagrams arrive: let fragments of UDP through, or have packets of "
                f"{OUTER_MTU:,} bytes fit everywhere on the way (MTU)"
            )
        to = [
            host
            for host, one in zip((self.target, self.source), passed, strict=True)
            if not (one.arrived or one.short_arrived)
        ]
        return f"no UDP arrives at {' and '.join(to)}: let it through to port {self.tunnels}"


@dataclass(frozen=True, slots=True)
class HostsExamination:
    """The findings of the doctor: on each host, by its name, and on the way between each two hosts."""

    hosts: Mapping[str, Sequence[Finding]]
    ways: Sequence[ExaminedWay]

    @property
    def sections(self) -> dict[str, list[Finding]]:
        """All findings, by headings."""
        found = {name: [*findings] for name, findings in self.hosts.items()}
        return found | {"between the hosts": [way.finding for way in self.ways]}

    def as_json(self) -> dict[str, object]:
        """Return it for JSON."""
        return {
            "hosts": {name: [asdict(one) for one in found] for name, found in self.hosts.items()},
            "ways": [asdict(way) | {"finding": asdict(way.finding)} for way in self.ways],
        }


def examine_hosts(file: HostsFile) -> HostsExamination:
    """Examine this host and those of a file, one after the other.

    Raises:
        SpecError: there is no secret.
    """
    secret = secret_of(file)
    hosts, members = {THIS_HOST: examined_here()}, list[Member]()
    for other in file.others:
        name = f"host {other.name}"
        try:
            member = Member.called(other, secret)
            hosts[name] = [
                Finding("agent", "ok", f"answers at {other.address}:{other.port}"),
                *member.examined(),
            ]
            members.append(member)
        except HostError as error:
            hosts[name] = [Finding("agent", "missing", str(error))]
    ways = list(_ways(file, members))
    for member in members:
        member.connection.socket.close()
    return HostsExamination(hosts, ways)


def _ways(file: HostsFile, members: Sequence[Member]) -> Iterator[ExaminedWay]:
    from_home = ((THIS_HOST, member, partial(member.way_from, file.underlay)) for member in members)
    between = (
        (one.host.name, other, partial(one.way_to, other))
        for one, other in combinations(members, 2)
    )
    for source, member, measure in (*from_home, *between):
        way, problem = None, ""
        try:
            way = measure(SECONDS, file.port)
        except HostError as error:
            problem = str(error)
        yield ExaminedWay(source, member.host.name, way, problem, file.port)
