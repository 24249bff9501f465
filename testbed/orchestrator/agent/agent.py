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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from testbed.channel import Channel, ReceivedMessage
from testbed.errors import HostError, TestbedError
from testbed.json_dataclasses import of_plain
from testbed.messages.agent_reports import (
    Event,
    LastSampleTaken,
    NetworkBuilt,
    NodeEvent,
    NodesCounted,
    NodesMade,
    ProcessExited,
    ProcessStarted,
    RemainsFound,
    RunFailed,
)
from testbed.messages.codec import send
from testbed.messages.planned_nodes import PlannedNetwork
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
    SetPace,
    StartRole,
    StopTraffic,
    ThawDevice,
)
from testbed.nodes import linux
from testbed.nodes.computing_turns import holds_turn
from testbed.nodes.namespaces import NamespaceNodes
from testbed.nodes.node_interface import Device, Nodes
from testbed.nodes.user_namespace import enter_user_namespace
from testbed.signal_handlers import STOPPING

if TYPE_CHECKING:
    from testbed.orchestrator.agent.device_folders import FoldersElsewhere
    from testbed.orchestrator.agent.run_network import RunNetwork
    from testbed.roles.pace import Paces

TURN_TIMEOUT = 5.0
"""Seconds to find a moment without a turn, after which a device is frozen even with one."""
COUNTER_PERIOD = 0.25
"""Seconds between two readings of the ingress counter."""


class Agent:
    """Serves the orchestrator's requests in one run; see ``serve``."""

    def __init__(
        self,
        control: Channel,
        nodes: Nodes,
        paces: "Paces | None" = None,
        folders: "FoldersElsewhere | None" = None,
    ) -> None:
        """Start without a network.

        Args:
            paces: the devices', which requests may change; None in a run that has none.
            folders: of devices with programs, on a host that is not the orchestrator's.
        """
        self._control = control
        self._nodes = nodes
        self._paces = paces
        self._folders = folders
        self._network: RunNetwork | None = None
        self._requests: deque[tuple[Request, Sequence[int]]] = deque()
        self._finished = False
        self._selector = selectors.DefaultSelector()
        self._handlers: dict[type, Callable[[Any], None]] = {
            **dict.fromkeys(get_args(ImpairmentRequest), self._impair),
            BuildNetwork: lambda request: self._build_network(request.plan),
            FreezeDevice: self._freeze,
            ThawDevice: self._thaw,
            KillDevice: self._kill,
            GiveUpDevices: lambda request: self._built.give_up(request.devices),
            SetPace: self._set_pace,
            SendBackground: lambda request: self._built.send_background(begin=request.begin),
            ReadIngress: lambda _: self._built.read_ingress(),
            ReadProcessors: lambda _: self._built.read_processors(),
            StopTraffic: lambda _: self._stop_traffic(),
            ReadHome: self._read_home,
        }

    def serve(self) -> None:
        """Serve until the orchestrator closes its end or the nodes have failed."""
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(self._nodes, selectors.EVENT_READ)
        next_reading = next_sample = 0.0
        while not self._finished:
            self._await_room(bool(self._requests))
            due = max(0.0, min(next_reading, next_sample) - time.monotonic())
            for key, events in self._selector.select(due if self._network else None):
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
            if self._network and time.monotonic() >= next_reading:
                self._network.read()
                self._report_output()
                next_reading = time.monotonic() + COUNTER_PERIOD
            if self._network and time.monotonic() >= next_sample:
                self._network.sample()
                next_sample = time.monotonic() + self._network.period

    @property
    def _built(self) -> "RunNetwork":
        """The network; only requests that come after it are about it."""
        assert self._network is not None
        return self._network

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
        if isinstance(event, ProcessStarted) and self._network:
            self._network.started(event.device, event.process)
        if isinstance(event, ProcessExited) and self._network:
            self._network.ended(event.device)
        self._report(event)
        self._finished = self._finished or isinstance(event, RunFailed)

    def _report(self, event: Event) -> None:
        send(self._control, event)

    def _start(self, request: StartRole, report: int) -> None:
        self._nodes.start(request.device, request.role, report)
        os.close(report)
        if self._network:
            self._network.joined(request.device)

    def _freeze(self, request: FreezeDevice) -> None:
        """Freeze a device while it holds no turn at computing, which no other device could take."""
        device = request.device
        network, deadline = self._nodes.network(device), time.monotonic() + TURN_TIMEOUT
        self._nodes.freeze(device)
        while holds_turn(network) and time.monotonic() < deadline:
            self._nodes.thaw(device)
            time.sleep(0.002)
            self._nodes.freeze(device)
        self._built.frozen(device, frozen=True)

    def _thaw(self, request: ThawDevice) -> None:
        self._nodes.thaw(request.device)
        self._built.frozen(request.device, frozen=False)

    def _kill(self, request: KillDevice) -> None:
        self._nodes.kill(request.device)
        self._built.ended(request.device)

    def _impair(self, request: ImpairmentRequest) -> None:
        self._built.impair(request)

    def _set_pace(self, request: SetPace) -> None:
        assert self._paces is not None
        self._paces[request.number] = request.factor

    def _read_home(self, request: ReadHome) -> None:
        assert self._folders is not None
        self._report(self._folders.part_of_home(request.device))

    def _stop_traffic(self) -> None:
        self._built.stop()
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
        from testbed.orchestrator.agent.run_network import BuiltLinks, RunNetwork

        self._nodes.create(of_plain(list[Device], plan["devices"]), self._made)
        if self._is_finished():
            return
        self._report(NodesMade())
        links = BuiltLinks(plan, self._nodes, self._report, self._is_finished)
        if self._is_finished():
            return
        if asked := plan.get("probe"):
            self._report(links.probe(asked, self._is_finished))
            if self._finished:
                return
        self._network = RunNetwork(plan, self._nodes, links, self._report)
        links.publish(self._nodes)
        self._report(NetworkBuilt())

    def _made(self, count: int) -> bool:
        """Report the number of nodes made so far; return True if the run is over."""
        self._report(NodesCounted(count))
        return self._is_finished()

    def _is_finished(self) -> bool:
        """Queue new requests; return True if the orchestrator has closed its end of the channel."""
        while not self._finished and self._control.readable(0):
            self._hear(self._control.receive())
        return self._finished

    def take_down(self) -> None:
        """End every node, remove what nodes were made of, and report what could not be removed."""
        if self._network:
            self._network.abandon()
        left = self._nodes.take_down()
        if left:
            print(left, file=sys.stderr)
            with contextlib.suppress(OSError):
                self._report(RemainsFound(left))


def _make_nodes(first: Request, control: Channel) -> Nodes:
    assert isinstance(first, LoadRoles)
    if first.nodes["runtime"] == "namespaces":
        return NamespaceNodes(first.nodes, first.load, control)
    # Imported only here: the other runtime must work without the Docker library.
    from testbed.containers.nodes import container_nodes

    return container_nodes(first.nodes, first.load, control)


def _paces(first: Request) -> "Paces | None":
    """Return the devices' paces, which this process may set; None in a run that has none."""
    from testbed.roles.arguments import RunArguments
    from testbed.roles.pace import Paces

    assert isinstance(first, LoadRoles)
    arguments = cast("RunArguments", first.load["arguments"])  # those of keepers are empty
    descriptor = arguments.get("paces")
    return None if descriptor is None else Paces(descriptor, arguments["settings"]["workers"])


def _folders(first: Request) -> "FoldersElsewhere | None":
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
    """Run the agent in this process, which must have one thread; return the exit status."""
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
