"""The agent: the process that owns a run's nodes and links.

The orchestrator stays an ordinary process of the user; the agent enters a user namespace where that is
needed, lives in the core's network namespace, makes nodes and network while the fork server loads its
libraries, and takes everything down when the orchestrator asks for it or is gone:

- the orchestrator dies: the agent's channel ends; it ends the nodes and removes what they were made of;
- the agent dies: the kernel kills the fork server, and with it, as the first process of their pid
  namespace, every node (a container's lifeline is cut, and the engine removes it); the network has no
  process left and goes too;
- the fork server dies: the nodes end with it, or the agent ends them; it reports that and ends.

Only a SIGKILL of both leaves something to remove by hand: empty control groups and an empty folder;
``testbed clean`` removes them.
"""

import contextlib
import selectors
import signal
import sys
import time
import traceback
from collections import deque
from typing import Any

from testbed.channel import Channel, Message
from testbed.errors import HostError, TestbedError
from testbed.nodes import linux
from testbed.nodes.interface import Device, Nodes
from testbed.nodes.namespaces import NamespaceNodes
from testbed.nodes.turns import holds_turn
from testbed.nodes.user_namespace import enter_user_namespace

TURN_TIMEOUT = 5.0
"""Seconds to find a moment without a turn, after which a device is frozen even with one."""
COUNTER_PERIOD = 0.25
"""Seconds between two readings of the ingress counter."""


class Agent:
    """Serves the orchestrator's requests in one run; see ``serve``."""

    def __init__(self, control: Channel, nodes: Nodes) -> None:
        self._control = control
        self._nodes = nodes
        self._observation: Any = None
        self._requests: deque[dict[str, Any]] = deque()
        self._finished = False
        self._extras: Any = None
        self._usage: Any = None
        self._device_faults: Any = None
        self._selector = selectors.DefaultSelector()

    def serve(self) -> None:
        """Serve until the orchestrator closes its end or the nodes have failed."""
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(self._nodes, selectors.EVENT_READ)
        next_reading = next_sample = 0.0
        while not self._finished:
            self._await_room(bool(self._requests))
            due = max(0.0, min(next_reading, next_sample) - time.monotonic())
            for key, events in self._selector.select(due if self._observation else None):
                if key.fileobj is self._control:
                    self._hear(self._control.receive())
                    continue
                if not events & selectors.EVENT_READ:
                    continue
                for event in self._nodes.events():
                    if "started" in event and self._usage:
                        self._usage.started(event["started"], event["process"])
                    self._control.send(event)
                    self._finished = self._finished or "failed" in event
            while self._requests and not self._finished and self._nodes.has_room():
                self._handle(self._requests.popleft())
            if self._observation and time.monotonic() >= next_reading:
                self._read_counter()
                next_reading = time.monotonic() + COUNTER_PERIOD
            if self._observation and time.monotonic() >= next_sample:
                self._sample_counters()
                next_sample = time.monotonic() + self._observation.period

    def _await_room(self, wanted: bool) -> None:
        """Have the selector report room in the channel to the nodes, if requests are waiting.

        The agent must never block on that channel: the fork server may itself be waiting for the agent
        to read its events.
        """
        events = selectors.EVENT_READ | wanted * selectors.EVENT_WRITE
        if self._selector.get_key(self._nodes).events != events:
            self._selector.modify(self._nodes, events)

    def _hear(self, message: Message | None) -> None:
        if message is None:
            self._finished = True
        else:
            self._requests.append(message.fields)

    def _handle(self, request: dict[str, Any]) -> None:
        match request:
            case {"network": plan}:
                self._build_network(plan)
            case {"start": device, "role": role}:
                self._nodes.start(device, role)
            case {"freeze": device}:
                self._freeze(device)
                self._tell_frozen(device, True)
            case {"thaw": device}:
                self._nodes.thaw(device)
                self._tell_frozen(device, False)
            case {"kill": device}:
                self._nodes.kill(device)
            case {"read": "counter"}:
                self._read_counter()
            case {"stop": "traffic"}:
                self._control.send({"traffic": self._observation.stop()} | self._egress())
                self._sample_counters()
                self._control.send({"sampled": "the last time"})
            case _:
                if not self._device_faults.serve(request):
                    raise ValueError(f"unknown request {request}")

    def _freeze(self, device: str) -> None:
        """Freeze a device while it holds no turn at computing, which no other device could take."""
        network, deadline = self._nodes.network(device), time.monotonic() + TURN_TIMEOUT
        self._nodes.freeze(device)
        while holds_turn(network) and time.monotonic() < deadline:
            self._nodes.thaw(device)
            time.sleep(0.002)
            self._nodes.freeze(device)

    def _tell_frozen(self, device: str, frozen: bool) -> None:
        if self._extras:
            self._control.send({"frozen": device, "yes": frozen})

    def _build_network(self, plan: dict[str, Any]) -> None:
        # Imported after the fork of the fork server, so that none of it is in the nodes' memory.
        from testbed.network import star
        from testbed.network.addresses import Link, Shape
        from testbed.orchestrator.agent.device_faults import DeviceFaults
        from testbed.orchestrator.agent.observation import Counted, Observation

        links = [
            Link(
                item["device"],
                item["index"],
                Shape(**item["uplink"]),
                Shape(**item["downlink"]),
            )
            for item in plan["links"]
        ]
        star.prepare_core()
        self._nodes.create([Device(**item) for item in plan["devices"]], self._made)
        if self._is_finished():
            return
        self._control.send({"nodes": "made"})
        networks = {link.device: self._nodes.network(link.device) for link in links}
        star.build(links, networks, plan["counted"], plan["uncounted"], self._linked)
        if self._is_finished():
            return
        if plan.get("probe"):
            # Before anything counts or captures, so that the probe is in no ledger.
            from testbed.orchestrator.agent.probing import probe_links

            self._control.send({"probed": probe_links(plan["probe"], networks, self._is_finished)})
            if self._finished:
                return
        (server,) = (link for link in links if link.device == plan["observed"])
        self._device_faults = DeviceFaults(links, networks, server.device_address, self._nodes)
        counted = Counted(plan["observed"], plan["counted"], plan["uncounted"])
        self._observation = Observation(plan["traffic"], links, counted, networks)
        if plan["traffic"].get("metrics"):
            from testbed.orchestrator.agent.extras import Extras
            from testbed.orchestrator.agent.usage import Usage

            self._usage = Usage(self._nodes.fork_server)
            self._extras = Extras(links, counted, networks, self._observation, self._usage)
        self._control.send({"network": "built"})

    def _made(self, count: int) -> bool:
        """Report the number of nodes made so far; return True if the run is over."""
        self._control.send({"made": count})
        return self._is_finished()

    def _linked(self, count: int) -> bool:
        """Report the number of links made so far; return True if the run is over."""
        self._control.send({"linked": count})
        return self._is_finished()

    def _is_finished(self) -> bool:
        """Queue new requests; return True if the orchestrator has closed its end of the channel."""
        while not self._finished and self._control.readable(0):
            self._hear(self._control.receive())
        return self._finished

    def _read_counter(self) -> None:
        self._control.send({"counter": self._observation.read_ingress()} | self._egress())

    def _egress(self) -> dict[str, Any]:
        return self._extras.egress() if self._extras else {}

    def _sample_counters(self) -> None:
        complaint = self._observation.complaint()
        if complaint:
            self._control.send({"warning": complaint})
        for rows in self._observation.sample():
            self._control.send({"sampled": "counters"}, rows)
        if self._extras:
            for rows in self._extras.uplinks():
                self._control.send({"sampled": "uplinks"}, rows)
            self._control.send({"extras": self._extras.sample()})

    def take_down(self) -> None:
        """End every node, remove what nodes were made of, and report what could not be removed."""
        if self._observation:
            self._observation.abandon()
        left = self._nodes.take_down()
        if left:
            print(left, file=sys.stderr)
            with contextlib.suppress(OSError):
                self._control.send({"left": left})


def _make_nodes(first: dict[str, Any], control: Channel, report: Channel) -> Nodes:
    """Make nodes of the kind that the run's plan asks for."""
    chosen, load = first["nodes"], first["load"]
    if chosen["runtime"] == "namespaces":
        return NamespaceNodes(load, report, control)
    # Imported only here: the other runtime must work without the Docker library.
    from testbed.containers.nodes import containers

    return containers(chosen, load, report, control)


def main() -> int:
    """Run the agent; its arguments are the descriptors of its two channels. Return the exit status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the orchestrator decides; the agent ends with it
    control, report = (Channel.from_descriptor(int(fd)) for fd in sys.argv[1:3])
    try:
        enter_user_namespace()
        try:
            linux.unshare(linux.CLONE_NEWNET | linux.CLONE_NEWNS)
        except OSError as error:
            raise HostError(
                f"namespaces cannot be made here ({error}): inside another container, run it with "
                "CAP_SYS_ADMIN; 'testbed doctor' tells what is missing"
            ) from error
        linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
        first = control.receive()
        if first is None:
            return 1
        agent = Agent(control, _make_nodes(first.fields, control, report))
        report.close()
    except TestbedError as error:
        control.send({"failed": str(error), "host": True})
        return 1
    try:
        agent.serve()
    except (BrokenPipeError, ConnectionResetError):
        return 1  # the orchestrator is gone
    except HostError as error:
        control.send({"failed": str(error), "host": True})
        return 1
    except Exception as error:
        traceback.print_exc()
        control.send({"failed": f"the agent: {type(error).__name__}: {error}"})
        return 1
    finally:
        agent.take_down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
