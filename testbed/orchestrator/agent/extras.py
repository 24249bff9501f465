"""What is sampled only while somebody exports metrics; the agent owns it.

The server's way out gets a class that counts frames at the MTU, as its way in has one always. The
uplinks of peers, whose way in is what a run counts, are counted at their own end. The capture tells
how far it is, and the processes are looked at.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pyroute2 import IPRoute

from testbed.device_names import SERVER_NAME
from testbed.network import shaping
from testbed.network.addresses import Link
from testbed.network.star import DEVICE_INDEX
from testbed.nodes.linux import inside_network
from testbed.orchestrator.agent.observation import ROWS, Counted, Observation, together
from testbed.orchestrator.agent.usage import Usage
from traffic.counters import Meter, read_all


class Extras:
    """The extras of one run."""

    def __init__(
        self,
        links: Sequence[Link],
        counted: Counted,
        namespaces: Mapping[str, int],
        observation: Observation,
        usage: Usage,
    ) -> None:
        """Set the counters up; nothing of the run may have been sent yet."""
        self._observation = observation
        self._usage = usage
        if observation.capture_process:
            usage.helper(observation.capture_process, "capture")
        self._egress: Meter | None = None
        self._uplinks: list[Meter] = []
        if counted.observed == SERVER_NAME:
            apart = [link.device_address for link in links if link.device in counted.apart]
            with inside_network(namespaces[SERVER_NAME]):
                with IPRoute() as netlink:
                    shaping.count_egress(netlink, DEVICE_INDEX, apart)
                self._egress = Meter(DEVICE_INDEX, shaping.COUNTED, from_now=True)
            return
        for link in links:
            if link.device in counted.devices:
                with inside_network(namespaces[link.device]):
                    handle = shaping.COUNTED if link.uplink.shapes else None
                    self._uplinks.append(Meter(DEVICE_INDEX, handle, from_now=True))

    def egress(self) -> dict[str, Any]:
        """Beside a reading of the ingress counter: the server's way out, if there is a server."""
        return {"egress": together([self._egress.read()])} if self._egress else {}

    def uplinks(self) -> list[bytes]:
        """``traffic.counters.COUNTS`` of the peers' uplinks, one row each, in parts."""
        rows = read_all(self._uplinks)
        return [rows[i : i + ROWS].tobytes() for i in range(0, len(rows), ROWS)]

    def sample(self) -> dict[str, Any]:
        """How far the capture is (None if it has not said), and what the processes use."""
        return {
            "capture": self._observation.capture_report(),
            "memory": self._usage.memory(),
            "processor": self._usage.processor(),
        }
