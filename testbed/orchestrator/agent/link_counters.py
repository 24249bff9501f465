"""Count what passes each direction of each link, from the network's beginning to the run's end.

Each direction is counted by a class at the end that sends (``testbed.network.shaping``). The classes
are read twice, all of one namespace together: when the network is there, as a probe may have sent
something, and at the run's end. Nothing is read while devices train.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from testbed.network.building import DEVICE_INDEX
from testbed.network.graph import Network
from testbed.network.shaping import COUNTED
from testbed.nodes.linux import inside_network
from testbed.telemetry.records import LINK
from traffic.classes import read_classes

ROWS = 3000
"""Rows in one part."""


class LinkCounters:
    """The counters of both directions of all links but those of devices that only observe."""

    def __init__(
        self, network: Network, apart: Sequence[str], namespaces: Mapping[str, int]
    ) -> None:
        """Read what has passed already; it is left out.

        Args:
            namespaces: descriptor of each node's network namespace, by name.

        Raises:
            TrafficError: a class does not exist.
        """
        self._namespaces = namespaces
        self._at: dict[str, list[tuple[int, bool, int]]] = {}
        for link in network.links:
            if link.node in apart:
                continue
            far = DEVICE_INDEX + (link.index if link.node in network.routers else 0)
            self._at.setdefault(link.node, []).append((link.index, True, far))
            near = DEVICE_INDEX + link.index
            self._at.setdefault(link.router, []).append((link.index, False, near))
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
                counts = read_classes([(interface, COUNTED) for _, _, interface in directions])
            for (index, up, _), count in zip(directions, counts, strict=True):
                rows.append((index, up, *count))
        return np.array(rows, LINK)
