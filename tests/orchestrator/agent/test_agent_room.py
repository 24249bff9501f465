"""An agent and a fork server with many messages for each other: no deadlock when channels are full."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from testbed.channel import Channel
from testbed.messages.agent_reports import (
    EVENTS,
    NODE_EVENTS,
    NodeEvent,
    ProcessExited,
    ProcessStarted,
)
from testbed.messages.codec import send
from testbed.messages.processes import FORK_REQUESTS, ForkRole
from testbed.messages.requests import StartRole
from testbed.nodes.node_interface import Device, Nodes
from testbed.orchestrator.agent.agent import Agent

STARTS = 2000
"""More than fit into the channels, which hold about 278 messages each way."""


class Started:
    """Nodes whose fork server is a thread, which reports a start and an end for each request."""

    fork_server = None

    def __init__(self) -> None:
        self.channel, theirs = Channel.pair()
        threading.Thread(target=self._fork, args=(theirs,), daemon=True).start()

    def _fork(self, theirs: Channel) -> None:
        while (request := FORK_REQUESTS.receive(theirs)) is not None:
            send(theirs, ProcessStarted(request.device, 2))
            send(theirs, ProcessExited(request.device, 0))
        theirs.close()

    def fileno(self) -> int:
        return self.channel.fileno()

    def events(self) -> Iterator[NodeEvent]:
        event = NODE_EVENTS.receive(self.channel)
        assert event is not None
        yield event

    def has_room(self) -> bool:
        return self.channel.has_room()

    def create(self, devices: Sequence[Device], abandoned: Any) -> None:
        raise NotImplementedError

    def network(self, device: str) -> int:
        raise NotImplementedError

    def start(self, device: str, role: Mapping[str, Any], report: int) -> None:
        send(self.channel, ForkRole(device, role))

    def containers(self) -> dict[str, int]:
        raise NotImplementedError

    def freeze(self, device: str) -> None:
        raise NotImplementedError

    thaw = kill = freeze

    def processor_seconds(self, device: str) -> float | None:
        raise NotImplementedError

    def limit(self, device: str, cpus: float | None) -> None:
        raise NotImplementedError

    def take_down(self) -> str | None:
        return None


def test_an_agent_does_not_wait_for_a_fork_server_that_waits_for_it() -> None:
    control, theirs = Channel.pair()
    nodes: Nodes = Started()
    serving = threading.Thread(target=Agent(theirs, nodes).serve, daemon=True)
    serving.start()

    def ask() -> None:
        for number in range(STARTS):
            send(control, StartRole(f"worker-{number}", {}), [control.fileno()])

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    exited, deadline = 0, time.monotonic() + 60
    while exited < STARTS and time.monotonic() < deadline:
        if control.readable(0.1):
            exited += isinstance(EVENTS.receive(control), ProcessExited)
    assert exited == STARTS
    asking.join(20)
    control.end()
    serving.join(20)
    assert not serving.is_alive()
    control.close()
    theirs.close()
