"""Count what passes each direction of each link, from the network's beginning to the run's end.

Each direction is counted by a class at the end that sends (``testbed.network.shaping``). The classes
are read twice, all of one namespace together: when the network is there, as a probe may have sent
something, and at the run's end. Nothing is read while devices train.

What was dropped is counted by the disciplines that split super-frames, where there are any, so that it
is in frames, too. Elsewhere nothing is to be dropped; if something is, the class knows how often.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.network.building import DEVICE_INDEX, Queues
from testbed.network.fair_queues import FIRST, splitters_of
from testbed.network.shaping import COUNTED, FROM_ABOVE, SPLITTER
from testbed.network.topology import Direction, Network
from testbed.nodes.linux import inside_network
from testbed.telemetry.update_rows import LINK
from traffic.queue_classes import read_classes, read_disciplines

ROWS = 3000
"""Rows in one part."""


class LinkCounters:
    """The counters of both directions of all links but those of devices that only observe."""

    def __init__(
        self,
        network: Network,
        queues: Queues,
        namespaces: Mapping[str, int],
    ) -> None:
        """Read what has passed already; it is left out.

        Args:
            namespaces: descriptor of each node's network namespace, by name.

        Raises:
            TrafficError: a class does not exist.
        """
        self._namespaces = namespaces
        self._at: dict[str, list[_Direction]] = {}
        """By node: the directions that it sends in."""

        def add(node: str, direction: Direction, interface: int, classes: Sequence[int]) -> None:
            if node not in namespaces:  # it is on another host, which counts it
                return
            pairs = queues.fair.get(direction)
            dropping = classes if pairs is None else range(FIRST, FIRST + 1 + len(pairs))
            splitters: Sequence[int] = ()
            if network.shape(direction).holds_packets:
                dropping = ()
                splitters = (SPLITTER,) if pairs is None else splitters_of(len(pairs))
            self._at.setdefault(node, []).append(
                _Direction(*direction, interface, classes, dropping, splitters)
            )

        for link in network.links:
            if link.node in queues.apart:
                continue
            far = DEVICE_INDEX + (link.index if link.node in network.routers else 0)
            add(link.node, (link.index, True), far, (COUNTED,))
            near = DEVICE_INDEX + link.index
            classes = (COUNTED, FROM_ABOVE) if link.node in queues.above else (COUNTED,)
            add(link.router, (link.index, False), near, classes)
        self._before = self._counted()

    def read(self) -> Iterator[bytes]:
        """Yield rows of ``records.LINK``, in parts.

        Raises:
            TrafficError: a class no longer exists.
        """
        rows = self._counted()
        for name in ("bytes", "frames", "dropped"):
            rows[name] -= self._before[name]
        for first in range(0, len(rows), ROWS):
            yield rows[first : first + ROWS].tobytes()

    def _counted(self) -> npt.NDArray[np.void]:
        rows = []
        for node, directions in self._at.items():
            with inside_network(self._namespaces[node]):
                counted = iter(read_classes(_asked(directions, "counting")))
                dropped = iter(read_classes(_asked(directions, "dropping")))
                split = iter(read_disciplines(_asked(directions, "splitters")))
            for one in directions:
                each = [next(counted) for _ in one.counting]
                drops = [next(dropped).dropped for _ in one.dropping]
                drops += [next(split).dropped for _ in one.splitters]
                size, frames = sum(of.bytes for of in each), sum(of.frames for of in each)
                rows.append((one.link, one.up, size, frames, sum(drops)))
        return np.array(rows, LINK)


class _Direction(NamedTuple):
    """A direction of a link, with the interface that sends in it.

    Attributes:
        counting: the classes that count what has passed.
        dropping: the classes that count what was dropped.
        splitters: the disciplines that do, instead of classes.
    """

    link: int
    up: bool
    interface: int
    counting: Sequence[int]
    dropping: Sequence[int]
    splitters: Sequence[int]


def _asked(
    directions: Sequence[_Direction], what: Literal["counting", "dropping", "splitters"]
) -> list[tuple[int, int]]:
    """Return the interface and the handle of each class, or discipline, of one kind."""
    return [(one.interface, handle) for one in directions for handle in getattr(one, what)]
