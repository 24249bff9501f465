"""The agent's side of background traffic: its sockets, the process that sends, and what has arrived.

On each host of a run these are those of the flows whose sender is there, or whose receiver is.

A device that is not there (frozen, killed, not arrived yet, with its link down) sends nothing. What is
sent to it crosses its link and is counted there, as the kernel receives whatever processes do.
"""

import contextlib
import json
import os
import socket
from collections import Counter
from collections.abc import Mapping, Sequence

from testbed.channel import readable
from testbed.errors import HostError
from testbed.json_dataclasses import of_plain
from testbed.messages.planned_nodes import PlannedBackground
from testbed.network import background
from testbed.network.background import FIRST_SOURCE_PORT, PORT, BackgroundFlow
from testbed.network.topology import Network
from testbed.nodes.forked_process import ForkedCommand
from testbed.nodes.linux import inside_network
from testbed.nodes.run_names import BACKGROUND
from traffic.sink import Sink

START_TIMEOUT = 300.0
"""Seconds until the process must be able to send; if it ends earlier, that is noticed at once."""
_STOP_TIMEOUT = 10.0
MOST_LATE = 0.05
"""The share of late datagrams above which a run is warned."""
_IP_RECVERR = 11


class BackgroundTraffic:
    """The background traffic of one run.

    Attributes:
        sent: the bytes of each flow that were sent, as frames, None of another host's; None before the
            end.
    """

    def __init__(
        self, plan: PlannedBackground, network: Network, namespaces: Mapping[str, int]
    ) -> None:
        """Open the sockets and start the process; nothing is sent yet.

        Args:
            namespaces: descriptor of the network namespace of each node of this host, by name.

        Raises:
            HostError: the sockets cannot be made, or the process does not start.
        """
        self._flows = [of_plain(BackgroundFlow, one) for one in plan["flows"]]
        self._is_sent_here = [flow.sender in namespaces for flow in self._flows]
        self._sinks: list[Sink | None] = []
        self._there: set[str] = set()
        self._frozen: set[str] = set()
        self._unlinked: set[str] = set()
        self._begun = self._ended = False
        self.sent: list[int | None] | None = None
        self._complaint: str | None = None
        with contextlib.ExitStack() as opened:
            descriptors: list[int | None] = []
            earlier: Counter[tuple[str, str]] = Counter()
            for flow in self._flows:
                pair = flow.sender, flow.receiver
                source, target = (network.link(one).address for one in pair)
                ends = (source, FIRST_SOURCE_PORT + earlier[pair]), (target, PORT)
                earlier[pair] += 1
                own = self._connect(flow, *ends, namespaces)
                descriptors.append(None if own is None else opened.enter_context(own).fileno())
                self._sinks.append(self._sink(flow, *ends, namespaces))
            handed = [one for one in descriptors if one is not None]
            self._process = ForkedCommand(BACKGROUND, background.main, handed)
            self._write({**plan, "sockets": descriptors})

    def _connect(
        self,
        flow: BackgroundFlow,
        source: tuple[str, int],
        target: tuple[str, int],
        namespaces: Mapping[str, int],
    ) -> socket.socket | None:
        """Return the socket that a flow is sent over; None if its sender is on another host."""
        if flow.sender not in namespaces:
            return None
        with inside_network(namespaces[flow.sender]):
            own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        own.setblocking(False)
        own.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # flows to others have the same port
        # Otherwise the kernel says of a datagram for which a queue has no room that it was sent.
        own.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
        own.bind(source)
        own.connect(target)
        return own

    def _sink(
        self,
        flow: BackgroundFlow,
        source: tuple[str, int],
        target: tuple[str, int],
        namespaces: Mapping[str, int],
    ) -> Sink | None:
        """Return the sink that counts what arrives of a flow; None if that is on another host."""
        if flow.receiver not in namespaces:
            return None
        try:
            with inside_network(namespaces[flow.receiver]):
                return Sink(target, source)
        except OSError as error:
            raise HostError(
                f"background traffic cannot arrive at {flow.receiver}: {error.strerror}"
            ) from error

    def await_start(self) -> None:
        """Wait until the process can send.

        Raises:
            HostError: it does not start.
        """
        output = self._process.output
        if not (readable(output, START_TIMEOUT) and os.read(output, 1)):
            raise HostError("the process that sends background traffic does not start")

    @property
    def process(self) -> int:
        """The id of the process that sends."""
        return self._process.process

    # -- which devices send

    def begin(self) -> None:
        """Start all flows."""
        self._begun = True
        self._tell()

    def started(self, device: str) -> None:
        """Start the flows of a device that is there."""
        self._there.add(device)
        self._tell()

    def ended(self, device: str) -> None:
        """Stop the flows of a device that is not there any more."""
        self._there.discard(device)
        self._tell()

    def freeze(self, device: str, frozen: bool) -> None:
        """Stop the flows of a device that is frozen, or start them again."""
        (self._frozen.add if frozen else self._frozen.discard)(device)
        self._tell()

    def link(self, device: str, up: bool) -> None:
        """Start or stop a device's flows with its link; a link that is down drops what it accepts."""
        (self._unlinked.discard if up else self._unlinked.add)(device)
        self._tell()

    def _tell(self) -> None:
        """Tell the process which flows are away, once they have begun."""
        if self._begun and not self._ended:
            silent = self._frozen | self._unlinked
            senders = enumerate(flow.sender for flow in self._flows)
            away = [i for i, one in senders if one not in self._there or one in silent]
            self._write({"away": away})

    def _write(self, command: Mapping[str, object]) -> None:
        with contextlib.suppress(OSError):  # it has ended, of which there is a complaint
            self._process.write(json.dumps(command).encode() + b"\n")

    # -- what is counted

    def received(self) -> list[int | None]:
        """Return the bytes of each flow that have arrived, as frames; None of another host's."""
        return [
            None if sink is None else flow.frame * sink.count
            for flow, sink in zip(self._flows, self._sinks, strict=True)
        ]

    def into(self, received: Sequence[int | None], device: str) -> tuple[int, int]:
        """Return the bytes and frames that have arrived at a device.

        Args:
            received: by ``received``.
        """
        flows = zip(self._flows, received, strict=True)
        own = [(flow, size or 0) for flow, size in flows if flow.receiver == device]
        return sum(size for _, size in own), sum(size // flow.frame for flow, size in own)

    def complaint(self) -> str | None:
        """Return what went wrong, once; None if nothing did, or it was returned."""
        if not self._ended and self._process.poll() is not None:
            self._ended = True
            self._complaint = "the background traffic ended before the run did"
        told, self._complaint = self._complaint, None
        return told

    def end(self) -> None:
        """End all flows for good."""
        if self._ended or self._process.poll() is not None:
            return  # ``complaint`` says so
        self._ended = True
        try:
            answer, _ = self._process.finish(_STOP_TIMEOUT)
            told = json.loads(answer.splitlines()[-1])
        except (ValueError, IndexError):
            self._complaint = "the process that sends background traffic did not end well"
            return
        flows = zip(self._flows, told["sent"], self._is_sent_here, strict=True)
        self.sent = [flow.frame * count if is_own else None for flow, count, is_own in flows]
        if told["late"] > MOST_LATE * told["tried"]:
            share = told["late"] / told["tried"]
            self._complaint = (
                f"the host was too slow for the background traffic: {share:.0%} of its datagrams were "
                "sent more than 100 ms late"
            )

    def abandon(self) -> None:
        """End the process of a run that was cut short."""
        self._process.kill()
