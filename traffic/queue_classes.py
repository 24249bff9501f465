"""Read the counters of many classes of queueing disciplines, or of many disciplines, at once.

Both count what they have sent as frames of at most the MTU (see ``traffic.counters``). The requests for
those of one network namespace go to the kernel in a few calls.
"""

import os
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pyroute2.netlink import NLMSG_ERROR

from traffic import TrafficError
from traffic.counters import class_counts, class_request, discipline_request, messages

AT_ONCE = 32
"""Requests in one call; the answers to more might not fit into the socket's memory."""


class ClassCounts(NamedTuple):
    """What a class, or a discipline, has sent and dropped.

    Attributes:
        bytes: sent, of frames at the MTU.
        frames: sent, at the MTU.
        dropped: packets that it had no room for; a super-frame of segmentation offload counts once.
    """

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
    return _read_all(classes, class_request, "class")


def read_disciplines(disciplines: Sequence[tuple[int, int]]) -> list[ClassCounts]:
    """Read queueing disciplines, given by their handles, as ``read_classes`` reads classes."""
    return _read_all(disciplines, discipline_request, "queueing discipline")


def _read_all(
    asked: Sequence[tuple[int, int]], request: Callable[[int, int], bytes], what: str
) -> list[ClassCounts]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC) as netlink:
        netlink.bind((0, 0))
        found: list[ClassCounts] = []
        for first in range(0, len(asked), AT_ONCE):
            found += _read(netlink, asked[first : first + AT_ONCE], request, what)
        return found


def _read(
    netlink: socket.socket,
    asked: Sequence[tuple[int, int]],
    request: Callable[[int, int], bytes],
    what: str,
) -> Iterator[ClassCounts]:
    netlink.send(b"".join(request(*one) for one in asked))
    waiting = list(reversed(asked))
    while waiting:
        for kind, body in messages(netlink.recv(65536)):
            interface, handle = waiting.pop()  # the kernel answers in order
            if kind == NLMSG_ERROR:
                (number,) = struct.unpack_from("=i", body)
                raise TrafficError(
                    f"the counters of {what} {handle:#x} of interface {interface} cannot be read: "
                    f"{os.strerror(-number)}"
                )
            size, frames, dropped, *_ = class_counts(body)
            yield ClassCounts(size, frames, dropped)
