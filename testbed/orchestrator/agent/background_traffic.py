"""The agent's side of background traffic: its sockets, the process that sends, and what has arrived.

A device that is not there (frozen, killed, not arrived yet, with its link down) sends nothing. What is
sent to it crosses its link and is counted there, as the kernel receives whatever processes do.
"""

import contextlib
import json
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.channel import readable
from testbed.errors import HostError
from testbed.json_dataclasses import of_plain
from testbed.network import background
from testbed.network.background import PORT, BackgroundFlow
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


class Background:
    """The background traffic of one run."""

    def __init__(
        self, plan: Mapping[str, Any], network: Network, namespaces: Mapping[str, int]
    ) -> None:
        """Open the sockets and start the process; nothing is sent yet.

        Args:
            plan: ``seed``, and the ``flows`` as JSON.
            namespaces: descriptor of each node's network namespace, by name.

        Raises:
            HostError: the sockets cannot be made, or the process does not start.
        """
        self._flows = [of_plain(BackgroundFlow, one) for one in plan["flows"]]
        self._sinks: list[Sink] = []
        self._there: set[str] = set()
        self._frozen: set[str] = set()
        self._unlinked: set[str] = set()
        self._begun = self._ended = False
        self._sent: list[int] | None = None
        self._complaint: str | None = None
        with contextlib.ExitStack() as opened:
            sockets = [
                opened.enter_context(self._connect(flow, network, namespaces))
                for flow in self._flows
            ]
            descriptors = [one.fileno() for one in sockets]
            self._process = ForkedCommand(BACKGROUND, background.main, descriptors)
            self._write({**plan, "sockets": descriptors})

    def _connect(
        self, flow: BackgroundFlow, network: Network, namespaces: Mapping[str, int]
    ) -> socket.socket:
        """Return the socket that a flow is sent over, and add the sink that counts what arrives."""
        here, there = (network.link(one).address for one in (flow.sender, flow.receiver))
        with inside_network(namespaces[flow.sender]):
            own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        own.setblocking(False)
        # Otherwise the kernel says of a datagram for which a queue has no room that it was sent.
        own.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
        own.bind((here, 0))
        own.connect((there, PORT))
        try:
            with inside_network(namespaces[flow.receiver]):
                self._sinks.append(Sink((there, PORT), own.getsockname()))
        except OSError as error:
            own.close()
            raise HostError(
                f"background traffic cannot arrive at {flow.receiver}: {error.strerror}"
            ) from error
        return own

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

    def _write(self, command: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it has ended, of which there is a complaint
            self._process.write(json.dumps(command).encode() + b"\n")

    # -- what is counted

    def received(self) -> list[int]:
        """Return the bytes of each flow that have arrived, as frames."""
        return [
            flow.frame * sink.count for flow, sink in zip(self._flows, self._sinks, strict=True)
        ]

    def into(self, received: Sequence[int], device: str) -> tuple[int, int]:
        """Return the bytes and frames that have arrived at a device.

        Args:
            received: by ``received``.
        """
        flows = zip(self._flows, received, strict=True)
        own = [(flow, size) for flow, size in flows if flow.receiver == device]
        return sum(size for _, size in own), sum(size // flow.frame for flow, size in own)

    @property
    def sent(self) -> list[int] | None:
        """The bytes of each flow that were sent, as frames; None if they are not known (yet)."""
        return self._sent

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
        self._sent = [
            flow.frame * count for flow, count in zip(self._flows, told["sent"], strict=True)
        ]
        if told["late"] > MOST_LATE * told["tried"]:
            share = told["late"] / told["tried"]
            self._complaint = (
                f"the host was too slow for the background traffic: {share:.0%} of its datagrams were "
                "sent more than 100 ms late"
            )

    def abandon(self) -> None:
        """End the process of a run that was cut short."""
        self._process.kill()
