"""The agents of three hosts, over real channels whose other ends are the test's."""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from testbed.channel import Channel
from testbed.device_names import HOME_HOST
from testbed.messages.agent_reports import HostLost, LastSampleTaken
from testbed.messages.codec import send
from testbed.messages.requests import (
    REQUESTS,
    GiveUpDevices,
    KillDevice,
    LimitProcessors,
    ReadHome,
    Request,
    SendBackground,
    SetLink,
    SetPartition,
    SetTracedRates,
    StopTraffic,
)
from testbed.orchestrator.agent.process import AgentProcess
from testbed.orchestrator.hosts.agents_of_hosts import AgentsOfHosts
from testbed.orchestrator.report_channels import ReportChannels

PLACE = {"worker-2": "b", "worker-3": "b", "worker-4": "c"}


@dataclass
class Three:
    """The agents, as the orchestrator has them, and their own ends by host."""

    ends: dict[str, Channel] = field(default_factory=dict)

    def started(self, folder: Path) -> AgentsOfHosts[ReportChannels]:
        reports = ReportChannels()

        def agent(host: str) -> AgentProcess[ReportChannels]:
            def begin(control: Channel, output: int, handed: Collection[int]) -> psutil.Process:
                self.ends[host] = control
                return psutil.Process(os.getpid())

            return AgentProcess(folder / "log", (), reports, begin)

        home, others = agent(HOME_HOST), {host: agent(host) for host in "bc"}
        return AgentsOfHosts(home, others, PLACE, {"b": 0.0, "c": 0.0})

    def asked(self) -> dict[str, list[Request]]:
        """Return what each agent was asked since the last call."""
        found: dict[str, list[Request]] = {}
        for host, end in self.ends.items():
            while end.readable(0):
                request = REQUESTS.receive(end)
                if request is None:
                    break
                found.setdefault(host, []).append(request)
        return found


@pytest.fixture
def three() -> Iterator[Three]:
    three = Three()
    yield three
    for end in three.ends.values():
        end.close()


def test_a_request_reaches_the_hosts_that_have_what_it_changes(
    three: Three, tmp_path: Path
) -> None:
    agents = three.started(tmp_path)
    expected: list[tuple[Request, set[str]]] = [
        (KillDevice("worker-2"), {"b"}),
        (KillDevice("worker-0"), {HOME_HOST}),
        (LimitProcessors("worker-4", 0.5), {"c"}),
        (SetLink("worker-4", False), {HOME_HOST, "c"}),
        (SetLink("worker-0", False), {HOME_HOST}),
        (SetPartition(["worker-2", "worker-4"], True), {HOME_HOST}),
        (SetTracedRates({"worker-0": [1, 2], "worker-3": [3, 4]}), {HOME_HOST, "b"}),
        (StopTraffic(), {HOME_HOST, "b", "c"}),
        (SendBackground(True), {HOME_HOST, "b", "c"}),
        (ReadHome("worker-4"), {"c"}),
    ]
    for request, hosts in expected:
        agents.ask(request)
        assert three.asked() == {host: [request] for host in hosts}


def test_a_host_that_is_lost_is_neither_asked_nor_waited_for(three: Three, tmp_path: Path) -> None:
    agents = three.started(tmp_path)
    home, of_b, of_c = agents.controls
    for host in (HOME_HOST, "b"):
        send(three.ends[host], LastSampleTaken())
    assert [*agents.events(home)] == [*agents.events(of_b)] == []
    three.ends["c"].close()
    assert [*agents.events(of_c)] == [("c", HostLost("its agent died")), ("c", LastSampleTaken())]
    assert agents.controls == [home, of_b]
    assert agents.devices("c") == ["worker-4"]
    agents.ask(GiveUpDevices(["worker-4"]))
    agents.ask(KillDevice("worker-4"))
    del three.ends["c"]
    assert three.asked() == {host: [GiveUpDevices(["worker-4"])] for host in (HOME_HOST, "b")}
