"""Read the counters of many classes of queueing disciplines at once.

A class counts what it has sent as frames of at most the MTU (see ``traffic.counters``). The requests
for the classes of one network namespace go to the kernel in a few calls.
"""

import os
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pyroute2.netlink import NLMSG_ERROR

from traffic import TrafficError
from traffic.counters import class_counts, class_request, messages

AT_ONCE = 32
"""Requests in one call; the answers to more might not fit into the socket's memory."""


class ClassCounts(NamedTuple):
    """The bytes and frames at the MTU that a class has sent, and the frames that it had no room for."""

    bytes: int
    frames: int
    dropped: int


def read_classes(classes: Sequence[tuple[int, int]]) -> list[ClassCounts]:
    """Read classes in the network namespace that the calling thread is in.

    Args:
        classes: the index of the interface and the handle of the class, for each.

    Raises:
        TrafficError: an interface or a class does not exist.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC) as netlink:
        netlink.bind((0, 0))
        found: list[ClassCounts] = []
        for first in range(0, len(classes), AT_ONCE):
            found += _read(netlink, classes[first : first + AT_ONCE])
        return found


def _read(netlink: socket.socket, classes: Sequence[tuple[int, int]]) -> Iterator[ClassCounts]:
    netlink.send(b"".join(class_request(*one) for one in classes))
    waiting = list(reversed(classes))
    while waiting:
        for kind, body in messages(netlink.recv(65536)):
            interface, handle = waiting.pop()  # the kernel answers in order
            if kind == NLMSG_ERROR:
                (number,) = struct.unpack_from("=i", body)
                raise TrafficError(
                    f"the counters of class {handle:#x} of interface {interface} cannot be read: "
                    f"{os.strerror(-number)}"
                )
            size, frames, dropped, *_ = class_counts(body)
            yield ClassCounts(size, frames, dropped)
