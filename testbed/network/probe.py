"""Measure links by sending trains of packets over them.

Every direction that shapes something gets a train (``packet_trains``): the uplink's is sent inside the
node's namespace, the downlink's in the router's. Both are seen on the router's end of the link,
where an uplink's packets arrive and a downlink's packets have just left the queue. The kernel takes
the times: once a train is in the queue, this process need not run until it has passed. The
datagrams go from one end of the link to the other and no further. A socket receives them there, and
nothing reads it: without a socket the kernel would answer with ICMP.

A direction that seems off, or of which too little is known, is measured up to ``TRIES`` times. When the
probe returns, the queues are empty and the buckets full.
"""

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.network import packet_trains
from testbed.network.links import Link, Shape
from testbed.network.packet_times import PacketTimes
from testbed.nodes.linux import inside_network

Direction: TypeAlias = Literal["uplink", "downlink"]
TRIES = 3
MOST_AT_A_TIME = 1_000_000_000
"""Bit/s, at most, of all trains that are sent at the same time."""
PATIENCE = 0.25
"""Seconds to wait for a train, beyond one and a half times the time that it should take."""
DRAINING = 4.0
"""Seconds after that in which a link that is too slow may empty its queue."""
LONGEST = 10.0
"""Seconds after which no further try is begun."""
_POLL = 0.003
_NUMBERS = struct.Struct("!II")
"""The beginning of every datagram: the train's number and the packet's."""
_NUMBERS_AT = 42
"""Offset of these numbers in a frame: after the headers of Ethernet, IPv4 and UDP."""
_PROTOCOL_AT = 23
_UDP = 17
_UDP_SEGMENT = 103
_SO_SNDBUFFORCE = 32
_SEND_BUFFER = 8 << 20
"""Bytes that a socket may have in the queue, the kernel's accounting included."""
_ZEROS = memoryview(bytes(1 << 16))


@dataclass(frozen=True, slots=True)
class ProbedDirection:
    """One direction of one link, as asked and as measured.

    Attributes:
        asked: the shape that the direction should have.
        measured: the measurement; None if there is none.
        unmeasured: why this shape cannot be measured.
        failed: why the measurement failed although the shape can be measured.
        off: which of ``rate``, ``delay`` and ``loss`` are not as asked.
        drained: True if everything that was sent has left the queue.
    """

    device: str
    direction: Direction
    asked: Shape
    measured: packet_trains.LinkMeasurement | None = None
    tries: int = 0
    unmeasured: str | None = None
    failed: str | None = None
    off: Sequence[str] = ()
    drained: bool = True


@dataclass(slots=True, eq=False)
class _Way:
    """One direction of one link, while it is measured."""

    link: Link
    direction: Direction
    shape: Shape
    namespace: int
    """Descriptor of the node's network namespace."""
    router: int
    """Descriptor of the router's network namespace."""
    train: packet_trains.Train
    measured: packet_trains.LinkMeasurement | None = None
    tries: int = 0
    drained: bool = True
    refused: str | None = None
    number: int = 0
    passage: packet_trains.Passage = field(init=False)

    @property
    def ends(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """The address and namespace of the sender, then of the receiver."""
        node = self.link.address, self.namespace
        router = self.link.router_address, self.router
        return (node, router) if self.direction == "uplink" else (router, node)

    @property
    def off(self) -> list[str]:
        return packet_trains.off(self.shape, self.measured) if self.measured else []

    @property
    def doubtful(self) -> bool:
        """True if another try may give a better result."""
        if self.measured is None or not self.drained or self.refused:
            return False
        return bool(self.off) or packet_trains.is_open(self.measured, self.shape)

    def found(self) -> ProbedDirection:
        return ProbedDirection(
            self.link.node,
            self.direction,
            self.shape,
            self.measured,
            self.tries,
            failed=self.refused or (None if self.measured else "the probe was given up"),
            off=tuple(self.off),
            drained=self.drained,
        )

    def start(self, number: int, opened: contextlib.ExitStack) -> None:
        """Send the train into the queue of the sending end, or record why that failed."""
        try:
            self._send(number, opened)
        except OSError as error:
            self.refused = f"nothing can be sent: {error.strerror}"

    def _send(self, number: int, opened: contextlib.ExitStack) -> None:
        (source, here), (destination, there) = self.ends
        with inside_network(there):
            sink = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)  # the kernel's minimum
        sink.bind((destination, 0))

        def connected() -> socket.socket:
            with inside_network(here):
                sender = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            sender.bind((source, 0))
            sender.connect(sink.getsockname())
            sender.setblocking(False)
            with contextlib.suppress(PermissionError):  # an ordinary user has 208 KiB
                sender.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _SEND_BUFFER)
            if self.shape.by_frame or max(self.train.payloads) > packet_trains.SEGMENT:
                sender.setsockopt(_UDP, _UDP_SEGMENT, packet_trains.SEGMENT)
            return sender

        self.number = number
        sent = np.empty(len(self.train.payloads), np.int64)
        sender = connected()
        for first, last in packet_trains.handed_over(self.train, self.shape):
            parts: list[bytes | memoryview] = []
            for i in range(first, last):
                zeros = self.train.payloads[i] - _NUMBERS.size
                parts += (_NUMBERS.pack(number, i), _ZEROS[:zeros])
            sent[first:last] = time.time_ns()
            try:
                sender.sendmsg(parts)
            except BlockingIOError:
                # A socket's share of the queue is limited: another socket has room.
                sender = connected()
                sender.sendmsg(parts)
        expected = round((1.5 * self.train.seconds + PATIENCE) * 1e9)
        until = time.time_ns() + expected
        self.passage = packet_trains.Passage(sent, np.full(len(sent), -1, np.int64), until)

    def note(self, packets: npt.NDArray[np.int64], times: npt.NDArray[np.int64]) -> None:
        """Record the times at which packets of the train were seen."""
        arrived = self.passage.arrived
        known = packets < len(arrived)
        arrived[packets[known]] = times[known]

    @property
    def over(self) -> bool:
        """True if no more of the train can arrive."""
        return packet_trains.is_over(self.passage)

    def conclude(self) -> None:
        """Compute the measurement; packets that came too late count as lost."""
        passage = self.passage
        self.drained = self.over
        late = passage.arrived > passage.until
        in_time = np.where(late, -1, passage.arrived)
        measured = packet_trains.measure(
            self.train, self.shape, packet_trains.Passage(passage.sent, in_time, passage.until)
        )
        self.tries += 1
        self.measured = (
            measured if self.measured is None else self.measured.better(measured, self.shape)
        )


def probe(
    links: Sequence[Link], namespaces: Mapping[str, int], given_up: Callable[[], bool]
) -> list[ProbedDirection]:
    """Measure rate, delay and loss of links.

    Args:
        links: the links, with their intended shapes. Nothing else may be sent over them meanwhile.
        namespaces: descriptor of each node's network namespace, by name.
        given_up: called now and then; True makes the probe return at once.

    Raises:
        OSError, TrafficError: packets cannot be sent or seen.
    """
    shaped = [one for link in links for one in _directions(link) if one[2].shapes]
    ways = [
        _Way(
            *(link, direction, shape, namespaces[link.node], namespaces[link.router]),
            packet_trains.compose(shape),
        )
        for link, direction, shape in shaped
        if packet_trains.unmeasurable(shape) is None
    ]
    with contextlib.ExitStack() as opened:
        seen = _watch(ways, opened)
        began = time.monotonic()
        left, number = ways, 0
        for _ in range(TRIES):
            for together in _batches(left):
                if not given_up():
                    _pass(together, seen, number, given_up)
                number += len(together)
            left = [way for way in left if way.doubtful]
            if not left or given_up() or time.monotonic() - began > LONGEST:
                break
    return [way.found() for way in ways] + [
        ProbedDirection(link.node, direction, shape, unmeasured=why)
        for link, direction, shape in shaped
        if (why := packet_trains.unmeasurable(shape))
    ]


def _directions(link: Link) -> tuple[tuple[Link, Direction, Shape], ...]:
    return (link, "uplink", link.uplink), (link, "downlink", link.downlink)


def _watch(ways: Sequence[_Way], opened: contextlib.ExitStack) -> dict[str, PacketTimes]:
    """Start to capture at the router's end of each link, with room for all packets that will pass."""
    packets: dict[str, int] = {}
    routers = {way.link.interface: way.router for way in ways}
    for way in ways:
        interface = way.link.interface
        packets[interface] = packets.get(interface, 0) + len(way.train.payloads)
    seen = {}
    for interface, count in packets.items():
        with inside_network(routers[interface]):
            seen[interface] = PacketTimes(interface, count)
        opened.callback(seen[interface].close)
    return seen


def _batches(ways: Sequence[_Way]) -> Iterator[list[_Way]]:
    """Yield groups of directions whose trains may be sent at the same time."""
    batch: list[_Way] = []
    rate = 0
    for way in ways:
        own = way.shape.rate or 0
        if batch and rate + own > MOST_AT_A_TIME:
            yield batch
            batch, rate = [], 0
        batch.append(way)
        rate += own
    if batch:
        yield batch


def _pass(
    ways: Sequence[_Way], seen: Mapping[str, PacketTimes], first: int, given_up: Callable[[], bool]
) -> None:
    """Send the trains of some directions, see them pass, and wait until the buckets are full."""
    with contextlib.ExitStack() as sockets:
        for number, way in enumerate(ways, first):
            way.start(number, sockets)
        numbered = {way.number: way for way in ways if way.refused is None}
        ways = list(numbered.values())
        watched = {way.link.interface for way in ways}
        while not given_up():
            time.sleep(_POLL)
            now = time.time_ns()
            for interface in watched:
                _sort(seen[interface], numbered)
            if all(way.over or now > way.passage.until + DRAINING * 1e9 for way in ways):
                break
        else:
            return
    for way in ways:
        way.conclude()
    time.sleep(max((way.train.refill for way in ways), default=0.0))


def _sort(seen: PacketTimes, ways: Mapping[int, _Way]) -> None:
    """Record, for each direction, which of its packets were seen on its link."""
    times, data = seen.take()
    times, data = times[data[:, _PROTOCOL_AT] == _UDP], data[data[:, _PROTOCOL_AT] == _UDP]
    numbers = data[:, _NUMBERS_AT : _NUMBERS_AT + _NUMBERS.size]
    train, packet = np.ascontiguousarray(numbers).view(">u4").astype(np.int64).T
    for number in np.unique(train):
        if (way := ways.get(int(number))) is not None:
            way.note(packet[train == number], times[train == number])
