"""Samples that are taken only if metrics are exported; the agent owns them.

The server's egress gets a class that counts frames at the MTU, as its ingress always has. The uplinks
of peers, of which a run counts the ingress, are counted at the peers' end. The capture reports its
progress, and memory and processor time of the processes are read.
"""

from collections.abc import Mapping

from pyroute2 import IPRoute

from testbed.device_names import SERVER_NAME
from testbed.messages.events import ProcessesSampled
from testbed.network import shaping
from testbed.network.building import DEVICE_INDEX
from testbed.network.graph import Network
from testbed.nodes.linux import inside_network
from testbed.orchestrator.agent.observation import ROWS, Counted, Observation, together
from testbed.orchestrator.agent.usage import Usage
from traffic.counters import Meter, read_all


class MetricsSamples:
    """The samples of one run that only its metrics need."""

    def __init__(
        self,
        network: Network,
        counted: Counted,
        namespaces: Mapping[str, int],
        observation: Observation,
        usage: Usage,
    ) -> None:
        """Set the counters up; no device may have sent anything yet."""
        self._observation = observation
        self._usage = usage
        if observation.capture_process:
            usage.helper(observation.capture_process, "capture")
        self._egress: Meter | None = None
        self._uplinks: list[Meter] = []
        if counted.observed == SERVER_NAME:
            apart = [network.link(device).address for device in counted.apart]
            with inside_network(namespaces[SERVER_NAME]):
                if not network.link(SERVER_NAME).uplink.shapes:  # else it has this class already
                    with IPRoute() as netlink:
                        shaping.count_egress(netlink, DEVICE_INDEX, apart)
                self._egress = Meter(DEVICE_INDEX, shaping.COUNTED, from_now=True)
            return
        for device in counted.devices:
            with inside_network(namespaces[device]):
                handle = shaping.COUNTED if network.link(device).uplink.shapes else None
                self._uplinks.append(Meter(DEVICE_INDEX, handle, from_now=True))

    def egress(self) -> dict[str, float] | None:
        """Return the server's egress, to go with a reading of the ingress; None without a server."""
        return together([self._egress.read()]) if self._egress else None

    def uplinks(self) -> list[bytes]:
        """Read the uplinks of peers: one row of ``traffic.counters.COUNTS`` each, ``ROWS`` per part."""
        rows = read_all(self._uplinks)
        return [rows[i : i + ROWS].tobytes() for i in range(0, len(rows), ROWS)]

    def processes(self) -> ProcessesSampled:
        """Return the capture's progress and what the processes use."""
        return ProcessesSampled(
            self._observation.capture_report(), self._usage.memory(), self._usage.processor()
        )
