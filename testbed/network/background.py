"""Background traffic: flows of UDP datagrams between devices, beside what a run is about.

A flow's law and its own random stream decide when its datagrams are due, before anything is sent: equal
seeds have equal schedules. A datagram that its device cannot send then is left out and not put off, so
that a flow goes on with its schedule when a fault is over.

One process sends the datagrams of all flows (``main``), over a socket of each flow in the network
namespace of its sender. It needs no other process: what arrives is counted by the kernel
(``traffic.sink``). This module imports no library but numpy, so that the process stays small.
"""

import contextlib
import heapq
import itertools
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from testbed.json_dataclasses import of_plain
from testbed.network.segments import DATAGRAM_HEADERS
from testbed.nodes.linux import die_with_parent
from testbed.random_streams import stream

PORT = 9
"""The port that datagrams are sent to: that of the discard service."""
FIRST_SOURCE_PORT = 61_000
"""The port that the datagrams of a flow come from; those of further flows between the same two devices
come from the next ones. The receiver's host, which may be another one, tells flows apart by it. The
kernel chooses lower ones.
"""
LATE = 0.1
"""Seconds after which a datagram counts as late."""
_AT_ONCE = 1000
"""Datagrams that are sent, after a pause, before the next command is read."""


@dataclass(frozen=True, slots=True)
class BackgroundFlow:
    """Datagrams from one device to another.

    Attributes:
        sender, receiver: the devices' names.
        rate: bit/s on the wire, headers down to Ethernet included; under ``on-off`` while it is on.
        size: bytes of a datagram's payload.
        law: ``constant``: at equal intervals; ``poisson``: at exponential intervals; ``on-off``: at
            equal intervals in periods with pauses between, of exponential lengths.
        on, off: mean seconds of a period and of a pause, of ``on-off``.
    """

    sender: str
    receiver: str
    rate: int
    size: int
    law: Literal["constant", "poisson", "on-off"] = "constant"
    on: float = 0.0
    off: float = 0.0

    @property
    def frame(self) -> int:
        """Bytes of a datagram on the wire."""
        return self.size + DATAGRAM_HEADERS

    @property
    def interval(self) -> float:
        """Mean seconds from one datagram to the next, while the flow is on."""
        return self.frame * 8 / self.rate


def times(flow: BackgroundFlow, draw: np.random.Generator) -> Iterator[float]:
    """Yield when datagrams of a flow are due, in seconds from its beginning, without end."""
    interval = flow.interval
    if flow.law == "on-off":
        yield from _in_periods(flow, draw)
    elif flow.law == "poisson":
        due = 0.0
        while True:
            due += draw.exponential(interval)
            yield due
    # Flows of one rate must not send all at the same moment.
    first = draw.random()
    for number in itertools.count():
        yield (first + number) * interval


def on_periods(
    flow: BackgroundFlow, draw: np.random.Generator
) -> tuple[float, Iterator[tuple[float, float]]]:
    """Draw when a flow is on under ``on-off``; whether it begins in a period or in a pause is drawn.

    Returns:
        When its first datagram is due, counted in time that is on, and the begin and the length of each
        period, without end; all in seconds.
    """
    begun = 0.0
    if draw.random() * (flow.on + flow.off) >= flow.on:
        begun = draw.exponential(flow.off)
    due = draw.random() * flow.interval

    def periods(begun: float) -> Iterator[tuple[float, float]]:
        while True:
            length = draw.exponential(flow.on)
            yield begun, length
            begun += length + draw.exponential(flow.off)

    return due, periods(begun)


def _in_periods(flow: BackgroundFlow, draw: np.random.Generator) -> Iterator[float]:
    """Yield when datagrams are due under ``on-off``."""
    due, periods = on_periods(flow, draw)
    for begun, length in periods:
        while due < length:
            yield begun + due
            due += flow.interval
        due -= length


class Sender:
    """Sends the datagrams of a run's flows.

    Attributes:
        sent: the datagrams of each flow that the kernel has accepted.
        tried: the datagrams that were to be sent by devices that could.
        late: those of them that were late by more than ``LATE``.
    """

    def __init__(
        self,
        flows: Sequence[BackgroundFlow],
        seed: int,
        send: Sequence[Callable[[bytes], object] | None],
    ) -> None:
        """Make the schedules; nothing is sent before ``begin``.

        Args:
            send: sends a datagram of each flow, or raises OSError; None of one whose sender is on
                another host.
        """
        self._send = send
        self._data = [bytes(flow.size) for flow in flows]
        self._times = [
            times(flow, stream(seed, "traffic_between", number))
            for number, flow in enumerate(flows)
        ]
        self._began = 0.0
        self._next = [(next(own), number) for number, own in enumerate(self._times)]
        heapq.heapify(self._next)
        self.away: Collection[int] = ()
        self.sent = [0] * len(flows)
        self.tried = self.late = 0

    def begin(self, now: float) -> None:
        """Start the schedules now, in seconds of CLOCK_MONOTONIC."""
        self._began = now

    @property
    def due(self) -> float:
        """When the next datagram is due, in seconds of CLOCK_MONOTONIC."""
        return self._began + self._next[0][0]

    def turn(self, now: float) -> None:
        """Send the datagrams that are due by now, at most ``_AT_ONCE`` of them."""
        for _ in range(_AT_ONCE):
            due, number = self._next[0]
            late = now - self._began - due
            if late < 0:
                return
            heapq.heapreplace(self._next, (next(self._times[number]), number))
            send = self._send[number]
            if send is None or number in self.away:
                continue
            self.tried += 1
            self.late += late > LATE
            # A queue is full, or there is no way to the receiver.
            with contextlib.suppress(OSError):
                send(self._data[number])
                self.sent[number] += 1


def main() -> None:
    """Send until the standard input ends.

    The process ends with its parent, too. Each line of standard input is a JSON object: the first has
    ``flows``, ``seed`` and the descriptors of the ``sockets`` (null: of another host),
    and is answered with an empty line; the next begins the schedules, and it and all later ones name
    the flows that are ``away``. The last line that is printed says what was ``sent``, ``tried`` and
    ``late``.
    """
    die_with_parent(signal.SIGKILL)
    commands = _Commands()
    while not (plans := commands.take(None)):
        if commands.ended:
            return
    (plan,) = plans
    flows = [of_plain(BackgroundFlow, one) for one in plan["flows"]]
    send = [None if one is None else socket.socket(fileno=one).send for one in plan["sockets"]]
    sender, begun = Sender(flows, plan["seed"], send), False
    print(flush=True)
    while not commands.ended:
        patience = max(0.0, sender.due - time.monotonic()) if begun else None
        for command in commands.take(patience):
            sender.away = frozenset(command["away"])
            if not begun:
                begun = True
                sender.begin(time.monotonic())
        if begun and not commands.ended:
            sender.turn(time.monotonic())
    print(json.dumps({"sent": sender.sent, "tried": sender.tried, "late": sender.late}))


class _Commands:
    """The lines of the standard input, as they come.

    Attributes:
        ended: whether no more will come.
    """

    def __init__(self) -> None:
        self.ended = False
        self._rest = b""

    def take(self, patience: float | None) -> list[dict[str, Any]]:
        """Return the objects that have come, or come within some seconds."""
        # select(2) waits for microseconds, poll(2) for whole milliseconds.
        if not select.select([0], [], [], patience)[0]:
            return []
        read = os.read(0, 1 << 16)
        self.ended = not read
        *lines, self._rest = (self._rest + read).split(b"\n")
        return [json.loads(line) for line in lines]
