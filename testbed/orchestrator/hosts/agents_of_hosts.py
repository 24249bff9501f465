"""The agents of one run on several hosts, which the orchestrator asks and hears like one.

The *home* is the orchestrator's own host: the routers, all that serve, and the evaluator are there, and
so is all that is captured, and counted of ingress. The others have workers or peers, but none on whose
machine a server is.
"""

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Generic

import numpy as np

from testbed.channel import Channel
from testbed.device_names import HOME_HOST
from testbed.messages.agent_reports import (
    EVENTS,
    CountersSampled,
    Event,
    HostLost,
    LastSampleTaken,
    LibrariesLoaded,
    LinksCounted,
    NetworkBuilt,
    NodesCounted,
    NodesMade,
    ProcessorTimesRead,
    ProcessStarted,
    RemainsFound,
    RunFailed,
    UplinksSampled,
    WarningRaised,
)
from testbed.messages.requests import (
    FreezeDevice,
    GiveUpDevices,
    KillDevice,
    LimitProcessors,
    ReadHome,
    ReadProcessors,
    Request,
    SendBackground,
    SetCorruption,
    SetLink,
    SetPace,
    SetRates,
    SetTracedRates,
    StartRole,
    StopTraffic,
    ThawDevice,
)
from testbed.orchestrator.agent.process import AgentProcess, R
from traffic.counters import COUNTS

_OF_DEVICE = (
    *(StartRole, FreezeDevice, ThawDevice, KillDevice, LimitProcessors, SetCorruption, SetPace),
    ReadHome,
)
_OF_LINK = (SetLink, SetRates)
"""Requests about both ends of a device's link, of which the router's is at home."""
_OF_ALL = (StopTraffic, ReadProcessors, GiveUpDevices, SendBackground)
_WHEN_ALL_HAVE = (LibrariesLoaded, NodesMade, NetworkBuilt, LastSampleTaken)
"""Events that count only when each host's agent has reported them."""
_COUNTED = (NodesCounted, LinksCounted)


class AgentsOfHosts(Generic[R]):
    """The agents of one run.

    Attributes:
        reports: the channels on which the roles of all hosts report.
    """

    def __init__(
        self,
        home: AgentProcess[R],
        others: Mapping[str, AgentProcess[R]] | None = None,
        place: Mapping[str, str] | None = None,
        behind: Mapping[str, float] | None = None,
    ) -> None:
        """Take over agents that have been started.

        Args:
            others: by the names of their hosts; None if there is one host.
            place: the host of each device that is not at home.
            behind: by how many seconds each other host's CLOCK_MONOTONIC is behind this host's.
        """
        self.reports = home.reports
        self._agents = {HOME_HOST: home, **(others or {})}
        self._lost: set[str] = set()
        self._place = place or {}
        self._behind = behind or {}
        self._reported: dict[type, set[str]] = {}
        self._counts: dict[type, dict[str, int]] = {}
        self._seconds: dict[str, Mapping[str, float]] = {}

    @property
    def process(self) -> int:
        """The process id of the agent at home."""
        return self._agents[HOME_HOST].process

    @property
    def controls(self) -> Sequence[Channel]:
        """The channels on which the agents report, but for those of hosts that are lost."""
        return [agent.control for host, agent in self._agents.items() if host not in self._lost]

    def devices(self, host: str) -> list[str]:
        """Return the devices on another host."""
        return [device for device, at in self._place.items() if at == host]

    def is_lost(self, device: str) -> bool:
        """Return True if the host of a device is lost."""
        return self._place.get(device, HOME_HOST) in self._lost

    def ask(self, request: Request) -> None:
        """Send a request to the agents that it concerns."""
        for host in self._concerned(request):
            self.ask_host(host, request)

    def _concerned(self, request: Request) -> Collection[str]:
        if isinstance(request, _OF_DEVICE):
            return (self._place.get(request.device, HOME_HOST),)
        if isinstance(request, _OF_LINK):
            return {HOME_HOST, self._place.get(request.device, HOME_HOST)}
        if isinstance(request, SetTracedRates):
            return {HOME_HOST, *(self._place.get(device, HOME_HOST) for device in request.rates)}
        return self._agents if isinstance(request, _OF_ALL) else (HOME_HOST,)

    def ask_host(self, host: str, request: Request) -> None:
        """Send a request to the agent of a host, unless that is lost."""
        if host not in self._lost:
            self._agents[host].ask(request)

    def send_waiting(self) -> list[Channel]:
        """Send the queued requests while there is room; return the channels that have none."""
        return [agent.control for agent in self._agents.values() if agent.send_waiting()]

    def events(self, control: Channel) -> Iterator[tuple[str, Event | None]]:
        """Yield what an agent's next message says about the run, and its host; None if it has ended."""
        (host,) = (name for name, agent in self._agents.items() if agent.control is control)
        event = EVENTS.receive(control)
        if host != HOME_HOST:
            event = self._of_other(host, event)
        if isinstance(event, _WHEN_ALL_HAVE):
            self._reported.setdefault(type(event), set()).add(host)
            if not self._all_have(type(event)):
                return
        elif isinstance(event, HostLost):
            waited = LastSampleTaken in self._reported and not self._all_have(LastSampleTaken)
            self._lost.add(host)
            yield host, event
            if waited and self._all_have(LastSampleTaken):
                yield host, LastSampleTaken()
            return
        elif isinstance(event, _COUNTED):
            counts = self._counts.setdefault(type(event), {})
            counts[host] = event.count
            event = replace(event, count=sum(counts.values()))
        elif isinstance(event, ProcessorTimesRead):
            self._seconds[host] = event.seconds
            if host != HOME_HOST:
                return
            together = {name: one for each in self._seconds.values() for name, one in each.items()}
            event = replace(event, seconds=together)
        elif isinstance(event, ProcessStarted) and host != HOME_HOST:
            return  # its number says nothing here
        yield host, event

    def _all_have(self, kind: type[Event]) -> bool:
        """Return True if each host that is not lost has reported an event of a kind."""
        return self._reported[kind] >= self._agents.keys() - self._lost

    def _of_other(self, host: str, event: Event | None) -> Event:
        """Return the event of another host's agent as one of this host's."""
        if event is None:
            return HostLost("its agent died")
        if isinstance(event, RunFailed):
            return replace(event, reason=f"host {host}: {event.reason}")
        if isinstance(event, WarningRaised | RemainsFound):
            return replace(event, text=f"host {host}: {event.text}")
        if isinstance(event, CountersSampled | UplinksSampled):
            rows = np.frombuffer(event.raw, COUNTS).copy()
            rows["time"] += self._behind[host]
            return replace(event, raw=rows.tobytes())
        return event

    def end(self, deadline: float) -> Iterator[str]:
        """Have each agent remove everything, and wait for their ends.

        Args:
            deadline: CLOCK_MONOTONIC in seconds after which an agent is killed.

        Yields:
            What could not be removed.
        """
        for host, agent in self._agents.items():
            if host != HOME_HOST:
                with contextlib.suppress(OSError):
                    agent.control.end()  # they end at the same time
        self.reports.close()
        for host, agent in self._agents.items():
            where = f"host {host}: " if host != HOME_HOST else ""
            for what in agent.end(deadline):
                yield f"{where}{what}"
