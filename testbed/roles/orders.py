"""How the virtual clock tells emulated devices what has happened, over the host.

A device that computes ahead of the clock may only do what shows (send) when the clock gets there. It is
told so over a channel of its own, which is not part of the emulated network and of no byte count: one
end is the clock's, the other the device's, both made before the nodes are forked. Peers, which have no
server that would know, tell the clock back what they did.
"""

import contextlib
import json
import select
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Self

from testbed.roles.transport.kernel_queues import under_way

_ORDER = struct.Struct("<Bq")
_LONGEST = 200_000
"""Bytes of the longest thing that a device tells, well below the kernel's default send buffer."""


class OrderKind(IntEnum):
    """What the clock says has happened."""

    ARRIVED = 1
    """The parameters of a version, or an update of a peer's, have arrived."""
    FINISHED = 2
    """The computation under way is over, the waiting behind it included."""
    EVALUATE = 3
    """The parameters there are now are to be evaluated."""
    STOP = 4
    """The run is over."""
    BEGIN = 5
    """A computation begins, at the model as it is now."""
    RESUME = 6
    """Mini-batches are drawn as behind so many computations; from there it goes on."""


@dataclass(frozen=True, slots=True)
class Order:
    """One thing that happened; ``number`` is a version, a peer or an iteration."""

    what: OrderKind
    number: int = 0


class OrderChannel:
    """One end of a device's channel."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def fileno(self) -> int:
        """The descriptor, for selectors."""
        return self._socket.fileno()

    def give(self, what: OrderKind, number: int = 0, *, wait: bool = True) -> bool:
        """Tell the device; waits while it is far behind. A device that is gone is told nothing.

        Returns:
            False if the device is far behind and this was not to wait.
        """
        flags = socket.MSG_NOSIGNAL | (0 if wait else socket.MSG_DONTWAIT)
        try:
            self._socket.send(_ORDER.pack(what, number), flags)
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionResetError):
            pass
        return True

    def await_room(self, patience: float) -> None:
        """Wait until there is room for orders again, for at most ``patience`` seconds."""
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT)
        poll.poll(1000 * patience)

    def take(self, wait: bool = True) -> Order | None:
        """The next thing the clock says; None without waiting if it has said nothing yet.

        Raises:
            ConnectionError: the clock is gone.
        """
        try:
            data = self._socket.recv(_ORDER.size, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        if not data:
            raise ConnectionResetError("the virtual clock is gone")
        what, number = _ORDER.unpack(data)
        return Order(OrderKind(what), number)

    def forget(self) -> None:
        """Leave out what the clock said so far: it was meant for somebody who was killed."""
        while self.take(wait=False) is not None:
            pass

    def tell(self, **fields: Any) -> None:
        """Tell the clock something; for a device's end."""
        self._socket.send(json.dumps(fields).encode(), socket.MSG_NOSIGNAL)

    def claim(self, waits_for: str | int | None, **fields: Any) -> None:
        """Tell the clock what the device waits for; nothing while the clock reads none of it.

        At most one claim is in the queue, so that there is always room for what ``tell`` tells.
        """
        if under_way(self._socket):
            return
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            told = json.dumps({"waits_for": waits_for} | fields).encode()
            self._socket.send(told, socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)

    def heard(self) -> list[dict[str, Any]]:
        """What the device has told so far, without waiting. For the clock's end."""
        told: list[dict[str, Any]] = []
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while data := self._socket.recv(_LONGEST, socket.MSG_DONTWAIT):
                told.append(json.loads(data))
        return told

    def hear(self) -> dict[str, Any]:
        """What the device told; waits for it. For the clock's end.

        Raises:
            ConnectionError: the device's end is closed.
        """
        data = self._socket.recv(_LONGEST)
        if not data:
            raise ConnectionResetError("the device is gone")
        fields: dict[str, Any] = json.loads(data)
        return fields

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


class OrderChannels:
    """The channels of all devices of a run, numbered from 0.

    Made once and inherited by the devices' processes, or handed to them by descriptor.
    """

    def __init__(self, devices: int) -> None:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(devices)]
        self._ours = dict(enumerate(ours for ours, _ in pairs))
        self._theirs = dict(enumerate(theirs for _, theirs in pairs))

    @classmethod
    def handed(cls, ours: Sequence[int] = (), theirs: Mapping[int, int] | None = None) -> Self:
        """Those of which another process has sent descriptors.

        Args:
            ours: the clock's ends of all devices.
            theirs: devices' ends by their numbers.
        """
        leaves = cls(0)
        leaves._ours = {i: socket.socket(fileno=end) for i, end in enumerate(ours)}
        leaves._theirs = {i: socket.socket(fileno=end) for i, end in (theirs or {}).items()}
        return leaves

    @property
    def clock_descriptors(self) -> Sequence[int]:
        """Of the clock's ends."""
        return [end.fileno() for end in self._ours.values()]

    def device_descriptor(self, number: int) -> int:
        """Of a device's end."""
        return self._theirs[number].fileno()

    def of_clock(self) -> list[OrderChannel]:
        """The clock's ends, in the clock's process."""
        for end in self._theirs.values():
            end.close()
        return [OrderChannel(end) for end in self._ours.values()]

    def of_device(self, number: int) -> OrderChannel:
        """A device's end, in the device's process."""
        for end in self._ours.values():
            end.close()
        for i, end in self._theirs.items():
            if i != number:
                end.close()
        return OrderChannel(self._theirs[number])

    def close(self) -> None:
        """Close all ends, in the process of somebody who has none."""
        for end in (*self._ours.values(), *self._theirs.values()):
            end.close()
