"""The agent: the process that owns a run's nodes and links.

The orchestrator stays an ordinary process of the user; the agent enters a user namespace where that is
needed, lives in the core's network namespace, makes nodes and network while the fork server loads its
libraries, and takes everything down when the orchestrator asks for it or is gone:

- the orchestrator dies: the agent's channel ends; it ends the nodes and removes what they were made of;
- the agent dies: the kernel kills the fork server, and with it, as the first process of their pid
  namespace, every node (a container's lifeline is cut, and the engine removes it); the network has no
  process left and goes too;
- the fork server dies: the nodes end with it, or the agent ends them; it reports that and ends.

Only a SIGKILL of both leaves something to remove by hand: control groups, which are empty but for the
processes of devices that were frozen (in v1 they do not die before), and an empty folder; ``testbed
clean`` removes them.
"""

import contextlib
import os
import selectors
import shutil
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast, get_args

from testbed.channel import Channel, ReceivedMessage
from testbed.errors import HostError, TestbedError
from testbed.json_dataclasses import of_plain
from testbed.messages.agent_reports import (
    BackgroundCounted,
    CountersSampled,
    DeviceFrozen,
    DeviceThawed,
    Event,
    LastSampleTaken,
    LinkBytesRead,
    LinksCounted,
    LinksProbed,
    NetworkBuilt,
    NodeEvent,
    NodesCounted,
    NodesMade,
    ProcessExited,
    ProcessorTimesRead,
    ProcessStarted,
    RemainsFound,
    RunFailed,
    UplinksSampled,
    WarningRaised,
)
from testbed.messages.codec import send
from testbed.messages.planned_nodes import PlannedNetwork, PlannedUnderlay
from testbed.messages.requests import (
    REQUESTS,
    BuildNetwork,
    FreezeDevice,
    GiveUpDevices,
    ImpairmentRequest,
    KillDevice,
    LoadRoles,
    ReadHome,
    ReadIngress,
    ReadProcessors,
    Request,
    SendBackground,
    SetLink,
    SetPace,
    StartRole,
    StopTraffic,
    ThawDevice,
)
from testbed.nodes import linux
from testbed.nodes.computing_turns import holds_turn
from testbed.nodes.namespaces import NamespaceNodes
from testbed.nodes.node_interface import Device, Nodes
from testbed.nodes.node_table import NodeTable
from testbed.nodes.user_namespace import enter_user_namespace
from testbed.signal_handlers import STOPPING

TURN_TIMEOUT = 5.0
"""Seconds to find a moment without a turn, after which a device is frozen even with one."""
COUNTER_PERIOD = 0.25
"""Seconds between two readings of the ingress counter."""


class Agent:
    """Serves the orchestrator's requests in one run; see ``serve``."""

    def __init__(
        self, control: Channel, nodes: Nodes, paces: Any = None, folders: Any = None
    ) -> None:
        self._control = control
        self._nodes = nodes
        self._paces = paces
        self._folders = folders
        self._observation: Any = None
        self._guard: Any = None
        self._link_counters: Any = None
        self._socket_counts: Any = None
        self._requests: deque[tuple[Request, Sequence[int]]] = deque()
        self._finished = False
        self._metrics: Any = None
        self._usage: Any = None
        self._processor_times: Any = None
        self._host: Any = None
        self._device_faults: Any = None
        self._background: Any = None
        self._selector = selectors.DefaultSelector()
        self._handlers: dict[type, Callable[[Any], None]] = {
            **dict.fromkeys(get_args(ImpairmentRequest), self._impair),
            BuildNetwork: lambda request: self._build_network(request.plan),
            FreezeDevice: self._freeze,
            ThawDevice: self._thaw,
            KillDevice: self._kill,
            GiveUpDevices: self._give_up,
            SetPace: self._set_pace,
            SendBackground: self._send_background,
            ReadIngress: lambda _: self._read_counter(),
            ReadProcessors: lambda _: self._read_processors(),
            StopTraffic: lambda _: self._stop_traffic(),
            ReadHome: lambda request: self._report(self._folders.part_of_home(request.device)),
        }

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
                    self._take(event)
            while self._requests and not self._finished and self._nodes.has_room():
                request, descriptors = self._requests.popleft()
                if isinstance(request, StartRole):
                    self._start(request, *descriptors)
                else:
                    self._handlers[type(request)](request)
            if self._observation and time.monotonic() >= next_reading:
                if self._observation.counts_ingress:
                    self._read_counter()
                self._socket_counts.take()
                self._report_output()
                if self._host and self._host.is_due:
                    self._report(self._host.read())
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

    def _hear(self, received: ReceivedMessage | None) -> None:
        if received is None:
            self._finished = True
        else:
            self._requests.append((REQUESTS.decode(received), received.descriptors))

    def _take(self, event: NodeEvent) -> None:
        """Take in an event of the nodes, and pass it on."""
        if isinstance(event, ProcessStarted) and self._usage:
            self._usage.started(event.device, event.process)
        if isinstance(event, ProcessExited) and self._background:
            self._background.ended(event.device)
        self._report(event)
        self._finished = self._finished or isinstance(event, RunFailed)

    def _report(self, event: Event) -> None:
        send(self._control, event)

    def _start(self, request: StartRole, report: int) -> None:
        """Start a role with its end of a channel for reports."""
        self._nodes.start(request.device, request.role, report)
        os.close(report)
        if self._background:
            self._background.started(request.device)

    def _freeze(self, request: FreezeDevice) -> None:
        """Freeze a device while it holds no turn at computing, which no other device could take."""
        device = request.device
        network, deadline = self._nodes.network(device), time.monotonic() + TURN_TIMEOUT
        self._nodes.freeze(device)
        while holds_turn(network) and time.monotonic() < deadline:
            self._nodes.thaw(device)
            time.sleep(0.002)
            self._nodes.freeze(device)
        if self._background:
            self._background.freeze(device, True)
        if self._metrics:
            self._report(DeviceFrozen(device))

    def _thaw(self, request: ThawDevice) -> None:
        self._nodes.thaw(request.device)
        if self._background:
            self._background.freeze(request.device, False)
        if self._metrics:
            self._report(DeviceThawed(request.device))

    def _kill(self, request: KillDevice) -> None:
        self._nodes.kill(request.device)
        if self._background:
            self._background.ended(request.device)

    def _give_up(self, request: GiveUpDevices) -> None:
        try:
            self._device_faults.give_up(request.devices)
        except OSError as error:
            text = f"the connections to the devices of a lost host stay open: {error.strerror}"
            self._report(WarningRaised(text))

    def _set_pace(self, request: SetPace) -> None:
        self._paces[request.number] = request.factor

    def _impair(self, request: ImpairmentRequest) -> None:
        self._device_faults.serve(request)
        if isinstance(request, SetLink) and self._background:
            self._background.link(request.device, request.up)

    def _send_background(self, request: SendBackground) -> None:
        if self._background:
            (self._background.begin if request.begin else self._background.end)()

    def _stop_traffic(self) -> None:
        if self._background:
            self._background.end()
        if self._observation.counts_ingress:
            self._report(self._observation.stop(self._egress(), self._device_faults.isolate))
        elif self._background:
            self._observation.wait_until_quiet()
            self._report(BackgroundCounted(self._background.received(), self._background.sent))
        for counted in self._socket_counts.read():
            self._report(counted)
        for rows in self._link_counters.read():
            self._report(LinkBytesRead(rows))
        self._sample_counters()
        self._read_processors()
        while self._report_output():
            pass
        self._report(LastSampleTaken())

    def _report_output(self) -> int:
        """Report what programs have said on a host that is not the orchestrator's; count the parts."""
        parts = list(self._folders.written()) if self._folders else []
        for part in parts:
            self._report(part)
        return len(parts)

    def _build_network(self, plan: PlannedNetwork) -> None:
        # Imported after the fork of the fork server, so that none of it is in the nodes' memory.
        from testbed.network import building
        from testbed.network.links import CORE, Link
        from testbed.network.topology import Network
        from testbed.orchestrator.agent.background_traffic import Background
        from testbed.orchestrator.agent.device_faults import DeviceFaults
        from testbed.orchestrator.agent.link_counters import LinkCounters
        from testbed.orchestrator.agent.observation import Observation, ObservedDevices
        from testbed.orchestrator.agent.socket_counts import SocketLedgers

        links = tuple(of_plain(Link, one) for one in plan["links"])
        delays = tuple((up, down) for up, down in plan.get("delays", ()))
        network = Network(links, tuple(plan["routers"]), delays)
        above = plan.get("above", {})
        queues = building.Queues(
            plan["counted"],
            plan["uncounted"],
            {(one["link"], one["up"]): one["pairs"] for one in plan["shared"]},
            [device for device in plan["captured"] if device not in above],
            plan.get("local", {}),
            above,
        )
        self._nodes.create(of_plain(list[Device], plan["devices"]), self._made)
        if self._is_finished():
            return
        self._report(NodesMade())
        underlay = self._underlay(plan.get("underlay"))
        elsewhere = underlay.elsewhere if underlay else {}
        if underlay:
            self._guard_tunnels(underlay, len(links))
        networks = {
            device: self._nodes.network(device)
            for device in network.devices
            if device not in elsewhere
        }
        # A router is a network namespace without a process; it goes when this process ends.
        routers = tuple(router for router in network.routers if router not in elsewhere)
        networks |= {
            router: linux.own_network() if router == CORE else linux.new_network()
            for router in routers
        }
        building.build(
            *(network, networks, queues, self._linked, plan["sysctls"]), underlay=underlay
        )
        if self._is_finished():
            return
        if plan.get("probe"):
            # Before anything counts or captures, so that the probe is in no ledger.
            from testbed.orchestrator.agent.probing import probe_links

            probed = [of_plain(Link, one) for one in plan["probe"]]
            self._report(LinksProbed(probe_links(probed, networks, self._is_finished)))
            if self._finished:
                return
        called = [network.link(device).address for device in plan["cut_from"]]
        self._device_faults = DeviceFaults(network, networks, called, self._nodes, queues.fair)
        counted = ObservedDevices(
            plan["captured"],
            plan["counted"],
            plan["uncounted"],
            plan.get("local", {}),
            above,
            queues.fair.keys(),
        )
        self._socket_counts = SocketLedgers(plan.get("sockets", ()), networks)
        if plan.get("background"):
            self._background = Background(plan["background"], network, networks)
        self._observation = Observation(
            plan["traffic"], network, counted, networks, self._background
        )
        self._link_counters = LinkCounters(
            network, counted.apart, networks, counted.above, queues.fair
        )
        self._read_use(plan)
        if plan["traffic"].get("metrics"):
            from testbed.orchestrator.agent.metrics_samples import MetricsSamples

            self._metrics = MetricsSamples(
                network, counted, networks, self._observation, self._usage
            )
        self._publish(networks, routers, underlay)
        if self._background:
            self._background.await_start()
        self._report(NetworkBuilt())

    def _read_use(self, plan: PlannedNetwork) -> None:
        """Read from now on how busy the host and its devices are."""
        from testbed.orchestrator.agent.host_readings import HostReadings, ProcessorTimes
        from testbed.orchestrator.agent.usage import Usage

        self._host = HostReadings() if plan.get("timed") else None
        self._usage = Usage(self._nodes.fork_server)
        if self._background:
            self._usage.helper(self._background.process, "background traffic")
        self._processor_times = ProcessorTimes(self._nodes, plan.get("measured", ()), self._usage)

    def _underlay(self, plan: PlannedUnderlay | None) -> Any:
        """Return what the plan says of other hosts, with this host's own network; None if of none.

        Raises:
            HostError: this agent is not root's.
        """
        from testbed.network.underlay import Underlay

        if plan is None:
            return None
        try:
            # The orchestrator, or the service that stands for it here, is outside the run.
            host = os.open(f"/proc/{os.getppid()}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            with linux.inside_network(host):
                pass
        except PermissionError as error:
            raise HostError("links between hosts need root, on each host") from error
        return Underlay(host, plan["address"], plan["elsewhere"], plan["first"], plan["port"])

    def _guard_tunnels(self, underlay: Any, links: int) -> None:
        """Keep strangers' packets out of links to other hosts, until this process ends."""
        from testbed.network.tunnel_guard import TunnelGuard

        try:
            self._guard = TunnelGuard(underlay, links)
        except HostError as error:
            self._report(WarningRaised(str(error)))

    def _publish(self, networks: Mapping[str, int], routers: Sequence[str], underlay: Any) -> None:
        """Make the nodes known to ``testbed exec``."""
        containers, fork_server = self._nodes.containers(), self._nodes.fork_server
        first = underlay.first_network if underlay else None
        NodeTable(networks, tuple(routers), containers, fork_server, first).publish()

    def _made(self, count: int) -> bool:
        """Report the number of nodes made so far; return True if the run is over."""
        self._report(NodesCounted(count))
        return self._is_finished()

    def _linked(self, count: int) -> bool:
        """Report the number of links made so far; return True if the run is over."""
        self._report(LinksCounted(count))
        return self._is_finished()

    def _is_finished(self) -> bool:
        """Queue new requests; return True if the orchestrator has closed its end of the channel."""
        while not self._finished and self._control.readable(0):
            self._hear(self._control.receive())
        return self._finished

    def _read_counter(self) -> None:
        self._report(self._observation.read(self._egress()))

    def _read_processors(self) -> None:
        self._report(ProcessorTimesRead(*self._processor_times.read()))

    def _egress(self) -> dict[str, float] | None:
        return self._metrics.egress() if self._metrics else None

    def _sample_counters(self) -> None:
        for one in (self._observation, self._background):
            if one and (complaint := one.complaint()):
                self._report(WarningRaised(complaint))
        for rows in self._observation.sample():
            self._report(CountersSampled(rows))
        if self._processor_times.is_due:
            self._read_processors()
        if self._metrics:
            for rows in self._metrics.uplinks():
                self._report(UplinksSampled(rows))
            if self._observation.counts_ingress:  # by role, of the orchestrator's host
                self._report(self._metrics.processes())

    def take_down(self) -> None:
        """End every node, remove what nodes were made of, and report what could not be removed."""
        for one in (self._background, self._observation):
            if one:
                one.abandon()
        left = self._nodes.take_down()
        if left:
            print(left, file=sys.stderr)
            with contextlib.suppress(OSError):
                self._report(RemainsFound(left))


def _make_nodes(first: Request, control: Channel) -> Nodes:
    """Make nodes of the kind that the run's plan asks for."""
    assert isinstance(first, LoadRoles)
    if first.nodes["runtime"] == "namespaces":
        nodes = first.nodes
        return NamespaceNodes(
            *(first.load, control, nodes["addresses"], nodes["read"], nodes.get("written")),
            folder=nodes.get("folder"),
        )
    # Imported only here: the other runtime must work without the Docker library.
    from testbed.containers.nodes import container_nodes

    return container_nodes(first.nodes, first.load, control)


def _paces(first: Request) -> Any:
    """Return the devices' paces, which this process may set; None in a run that has none."""
    from testbed.roles.arguments import RunArguments
    from testbed.roles.pace import Paces

    assert isinstance(first, LoadRoles)
    arguments = cast("RunArguments", first.load["arguments"])  # those of keepers are empty
    descriptor = arguments.get("paces")
    return None if descriptor is None else Paces(descriptor, arguments["settings"]["workers"])


def _folders(first: Request) -> Any:
    """Make the folders of devices with programs on a host that is not the orchestrator's; else None."""
    assert isinstance(first, LoadRoles)
    nodes = first.nodes
    if (folder := nodes.get("folder")) is None:
        return None
    from testbed.orchestrator.agent.device_folders import FoldersElsewhere

    try:
        return FoldersElsewhere(Path(folder), nodes["homes"], nodes["files"])
    except (OSError, shutil.Error) as error:
        raise HostError(f"the homes of devices cannot be made: {error}") from error


def run(control: Channel) -> int:
    """Run the agent in this process, which must have one thread; return the exit status.

    Args:
        control: its end of the channel to the orchestrator.
    """
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)  # the orchestrator decides; the agent ends with it
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
        linux.uncover_settings()
        first = REQUESTS.receive(control)
        if first is None:
            return 1
        folders = _folders(first)
        agent = Agent(control, _make_nodes(first, control), _paces(first), folders)
    except TestbedError as error:
        send(control, RunFailed(str(error), host=True))
        return 1
    try:
        agent.serve()
    except (BrokenPipeError, ConnectionResetError):
        return 1  # the orchestrator is gone
    except HostError as error:
        send(control, RunFailed(str(error), host=True))
        return 1
    except Exception as error:
        traceback.print_exc()
        send(control, RunFailed(f"the agent: {type(error).__name__}: {error}"))
        return 1
    finally:
        agent.take_down()
    return 0
