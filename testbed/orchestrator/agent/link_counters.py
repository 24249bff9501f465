"""Count what passes each direction of each link, from the network's beginning to the run's end.

Each direction is counted by a class at the end that sends (``testbed.network.shaping``). The classes
are read twice, all of one namespace together: when the network is there, as a probe may have sent
something, and at the run's end. Nothing is read while devices train.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence, Sized

import numpy as np
import numpy.typing as npt

from testbed.network.building import DEVICE_INDEX
from testbed.network.fair_queues import FIRST
from testbed.network.graph import Direction, Network
from testbed.network.shaping import COUNTED, FROM_ABOVE
from testbed.nodes.linux import inside_network
from testbed.telemetry.records import LINK
from traffic.classes import read_classes

ROWS = 3000
"""Rows in one part."""


class LinkCounters:
    """The counters of both directions of all links but those of devices that only observe."""

    def __init__(
        self,
        network: Network,
        apart: Sequence[str],
        namespaces: Mapping[str, int],
        above: Collection[str] = (),
        fair: Mapping[Direction, Sized] | None = None,
    ) -> None:
        """Read what has passed already; it is left out.

        Args:
            namespaces: descriptor of each node's network namespace, by name.
            above: the devices into which a class of its own counts what their server sends.
            fair: the directions that pairs share, each of which has a class that may drop.

        Raises:
            TrafficError: a class does not exist.
        """
        self._namespaces = namespaces
        # By node: the directions that it sends in, each with the interface, the classes that count,
        # and those of the pairs, which drop.
        self._at: dict[str, list[tuple[int, bool, int, Sequence[int], Sequence[int]]]] = {}
        sharing = fair or {}

        def of_pairs(index: int, up: bool) -> Sequence[int]:
            pairs = sharing.get((index, up))
            return () if pairs is None else range(FIRST, FIRST + 1 + len(pairs))

        for link in network.links:
            if link.node in apart:
                continue
            far = DEVICE_INDEX + (link.index if link.node in network.routers else 0)
            self._at.setdefault(link.node, []).append(
                (link.index, True, far, (COUNTED,), of_pairs(link.index, True))
            )
            near = DEVICE_INDEX + link.index
            classes = (COUNTED, FROM_ABOVE) if link.node in above else (COUNTED,)
            self._at.setdefault(link.router, []).append(
                (link.index, False, near, classes, of_pairs(link.index, False))
            )
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
            asked = [
                (interface, one)
                for *_, interface, classes, pairs in directions
                for one in (*classes, *pairs)
            ]
            with inside_network(self._namespaces[node]):
                counts = iter(read_classes(asked))
            for index, up, _, classes, pairs in directions:
                each = [next(counts) for _ in classes]
                size, frames, dropped = map(sum, zip(*each, strict=True))
                dropped += sum(next(counts).dropped for _ in pairs)
                rows.append((index, up, size, frames, dropped))
        return np.array(rows, LINK)
