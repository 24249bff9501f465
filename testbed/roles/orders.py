"""Orders, by which the virtual clock reports events to emulated devices over the host.

A device computes ahead of the clock, but may send only when the clock gets there. It receives its
orders over a channel of its own, which is no part of the emulated network and of no byte count: one end
is the clock's, the other the device's, and both are made before the nodes are forked. Peers, which have
no server that knows their progress, report to the clock what they did.
"""

import json
import select
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Self, TypeVar

from testbed.messages import codec
from testbed.roles.transport.endpoint import NOW

_ORDER = struct.Struct("<Bq")
C = TypeVar("C")
_QUIETLY = int(socket.MSG_NOSIGNAL)
_BELOW_INCARNATION = 40
"""Bits of a state's number below the incarnation."""
_LONGEST = 200_000
"""Bytes of a device's longest report, well below the kernel's default send buffer."""


class OrderKind(IntEnum):
    """The kind of event that the clock reports."""

    ARRIVED = 1
    """The parameters of a version, or another peer's update, have arrived."""
    FINISHED = 2
    """The computation under way is over, and so is the waiting after it.

    Of a worker's earlier states only those after ``number`` of its computations and more are needed."""
    EVALUATE = 3
    """The current parameters are to be evaluated."""
    STOP = 4
    """The run is over."""
    BEGIN = 5
    """A computation begins, at the current model."""
    RESUME = 6
    """The worker goes on as if it had drawn the mini-batches of ``number`` computations."""
    REPORT = 7
    """At the end of the computation, server ``number`` only gets a report of it."""
    READ = 8
    """Server ``number`` has read the message of the computation already, before it was restored."""
    WAIT = 9
    """Nothing is computed before other parameters arrive than those at which it was computed last."""
    FORGET = 10
    """Peer ``number`` dies: what has not arrived from it, by the clock, is lost."""
    SUSPECT = 12
    """Peer ``number`` is silent: it is not waited for until something comes from it."""
    ADMIT = 13
    """Peer ``number``, which was killed, is back, and has connected to this one."""
    KEEP = 14
    """A checkpoint needs the state ``number`` that the worker has written, or is about to write."""
    GO_ON = 15
    """The worker goes on from the state ``number`` that it wrote, which the checkpoint needs."""
    SETTLE = 11
    """All that was sent has to reach the others' kernels, as peers are about to be stopped."""


def state_number(incarnation: int, ended: int) -> int:
    """Return the number of the state of a worker's incarnation that has ended some computations."""
    return incarnation << _BELOW_INCARNATION | ended


_KINDS = {int(kind): kind for kind in OrderKind}


@dataclass(frozen=True, slots=True)
class Order:
    """One event; ``number`` is a version, a peer, an iteration, a state or a count of computations."""

    what: OrderKind
    number: int = 0


class OrderChannel:
    """One end of the channel between the clock and a device."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def fileno(self) -> int:
        return self._socket.fileno()

    def give(self, what: OrderKind, number: int = 0, *, wait: bool = True) -> bool:
        """Send the device an order, unless it is gone; wait while its queue is full.

        Returns:
            False if the queue is full and ``wait`` is False.
        """
        try:
            self._socket.send(_ORDER.pack(what, number), _QUIETLY if wait else _QUIETLY | NOW)
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionResetError):
            pass
        return True

    def give_all(self, orders: Sequence[tuple[OrderKind, int]]) -> None:
        for what, number in orders:
            self.give(what, number)

    def await_room(self, patience: float) -> None:
        """Wait until there is room for orders again, for at most ``patience`` seconds."""
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT)
        poll.poll(1000 * patience)

    def take(self, wait: bool = True) -> Order | None:
        """Receive the clock's next order; without ``wait``, return None if there is none yet.

        Raises:
            ConnectionError: the clock is gone.
        """
        try:
            data = self._socket.recv(_ORDER.size, 0 if wait else NOW)
        except BlockingIOError:
            return None
        if not data:
            raise ConnectionResetError("the virtual clock is gone")
        what, number = _ORDER.unpack(data)
        return Order(_KINDS[what], number)

    def forget(self) -> None:
        """Drop all orders so far: they are from before this device or the server was killed."""
        while self.take(wait=False) is not None:
            pass

    def report(self, message: Any) -> None:
        """Send the clock a report, an instance of one of its dataclasses. For the device's end."""
        self._socket.send(json.dumps(codec.encode(message)[0]).encode(), _QUIETLY)

    def hear(self) -> dict[str, object]:
        """Wait for the device's next report, and return it. For the clock's end.

        Raises:
            ConnectionError: the device's end is closed.
        """
        data = self._socket.recv(_LONGEST)
        if not data:
            raise ConnectionResetError("the device is gone")
        fields: dict[str, object] = json.loads(data)
        return fields

    def close(self) -> None:
        self._socket.close()


class OrderChannels:
    """The channels of all devices of a run, numbered from 0.

    They are made once; the devices' processes inherit them, or receive their descriptors.
    """

    def __init__(self, devices: int, handed: Mapping[int, int] | None = None) -> None:
        """Make the channels.

        Args:
            handed: an end of each channel whose other end is on another host, by the device's number:
                the clock's where the clock is, and else the device's.
        """
        self._ours, self._theirs = {}, {}
        for number in range(devices):
            if handed and number in handed:
                end = socket.socket(fileno=handed[number])
                self._ours[number], self._theirs[number] = end, end.dup()
                continue
            pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._ours[number], self._theirs[number] = pair

    @classmethod
    def handed(cls, ours: Sequence[int] = (), theirs: Mapping[int, int] | None = None) -> Self:
        """Make channels of the descriptors that another process sent."""
        leaves = cls(0)
        leaves._ours = {i: socket.socket(fileno=end) for i, end in enumerate(ours)}
        leaves._theirs = {i: socket.socket(fileno=end) for i, end in (theirs or {}).items()}
        return leaves

    @property
    def clock_descriptors(self) -> Sequence[int]:
        """The descriptors of the clock's ends."""
        return [end.fileno() for end in self._ours.values()]

    def device_descriptor(self, number: int) -> int:
        return self._theirs[number].fileno()

    def of_clock(self, kind: Callable[[socket.socket], C]) -> list[C]:
        """Return the clock's ends, as channels of a kind, in the clock's process; close the others."""
        for end in self._theirs.values():
            end.close()
        return [kind(end) for end in self._ours.values()]

    def of_device(self, number: int, kind: Callable[[socket.socket], C]) -> C:
        """Return a device's end, as a channel of a kind, in the device's process; close the others."""
        for end in self._ours.values():
            end.close()
        for i, end in self._theirs.items():
            if i != number:
                end.close()
        return kind(self._theirs[number])

    def close(self) -> None:
        """Close all ends, in a process that uses none of them."""
        for end in (*self._ours.values(), *self._theirs.values()):
            end.close()
