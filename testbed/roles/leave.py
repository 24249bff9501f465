"""How the virtual clock tells emulated devices what has happened, over the host.

A device that computes ahead of the clock may only do what shows (send) when the clock gets there. It is
told so over a channel of its own, which is not part of the emulated network and of no byte count: one
end is the clock's, the other the device's, both made before the nodes are forked. Peers, which have no
server that would know, tell the clock back what they did.
"""

import contextlib
import json
import socket
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

_ORDER = struct.Struct("<Bq")
_LONGEST = 200_000
"""Bytes of the longest thing that a device tells, well below the kernel's default send buffer."""


class What(IntEnum):
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


@dataclass(frozen=True, slots=True)
class Order:
    """One thing that happened; ``number`` is a version, a peer or an iteration."""

    what: What
    number: int = 0


class Leave:
    """One end of a device's channel."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def fileno(self) -> int:
        """The descriptor, for selectors."""
        return self._socket.fileno()

    def give(self, what: What, number: int = 0) -> None:
        """Tell the device; waits while it is far behind. A device that is gone is told nothing."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.send(_ORDER.pack(what, number), socket.MSG_NOSIGNAL)

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
        return Order(What(what), number)

    def tell(self, **fields: Any) -> None:
        """Tell the clock something; for a device's end."""
        self._socket.send(json.dumps(fields).encode(), socket.MSG_NOSIGNAL)

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


class Leaves:
    """The channels of all devices of a run, numbered from 0; made before they are forked."""

    def __init__(self, devices: int) -> None:
        self._pairs = [
            socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(devices)
        ]

    def of_clock(self) -> list[Leave]:
        """The clock's ends, in the clock's process."""
        for _, theirs in self._pairs:
            theirs.close()
        return [Leave(ours) for ours, _ in self._pairs]

    def of_device(self, number: int) -> Leave:
        """A device's end, in the device's process."""
        for i, (ours, theirs) in enumerate(self._pairs):
            ours.close()
            if i != number:
                theirs.close()
        return Leave(self._pairs[number][1])

    def close(self) -> None:
        """Close all ends, in the process of somebody who has none."""
        for pair in self._pairs:
            for end in pair:
                end.close()
