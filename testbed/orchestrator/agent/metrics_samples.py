"""Samples that are taken only if metrics are exported; the agent owns them.

The egress of servers is counted as their ingress always is. The uplinks of peers, of which a run counts
the ingress, are counted at the end of those peers that are on this host. The capture reports its
progress, and memory and processor time of the processes are read.
"""

from collections.abc import Mapping

from testbed.device_names import is_server
from testbed.messages.agent_reports import ProcessesSampled
from testbed.network import shaping
from testbed.network.building import DEVICE_INDEX, Queues
from testbed.network.topology import Network
from testbed.nodes.linux import inside_network
from testbed.orchestrator.agent.observation import ROWS, Observation, class_meter, together
from testbed.orchestrator.agent.usage import Usage
from traffic.counters import Meter, read_all


class MetricsSamples:
    """The samples of one run that only its metrics need."""

    def __init__(
        self,
        network: Network,
        queues: Queues,
        namespaces: Mapping[str, int],
        observation: Observation,
        usage: Usage,
    ) -> None:
        """Set the counters up; no device may have sent anything yet."""
        self._observation = observation
        self._usage = usage
        for process in observation.capture_processes:
            usage.helper(process, "capture")
        self._egress: list[Meter] = []
        self._uplinks: list[Meter] = []
        servers = [one for one in queues.captured if is_server(one) and one in namespaces]
        for device in servers:
            with inside_network(namespaces[device]):
                self._egress.append(Meter(DEVICE_INDEX, shaping.COUNTED, from_now=True))
        if self._egress:
            return
        for device in queues.counted:
            if device not in namespaces:
                continue
            with inside_network(namespaces[device]):
                link = network.link(device)
                self._uplinks.append(
                    class_meter(network, queues, (link.index, True), DEVICE_INDEX)
                    if link.uplink.shapes
                    else Meter(DEVICE_INDEX, None, from_now=True)
                )

    def egress(self) -> dict[str, float] | None:
        """Return the servers' egress, to go with a reading of the ingress; None without a server."""
        return together(meter.read() for meter in self._egress) if self._egress else None

    def uplinks(self) -> list[bytes]:
        """Read the uplinks of peers: one row of ``traffic.counters.COUNTS`` each, ``ROWS`` per part."""
        rows = read_all(self._uplinks)
        return [rows[i : i + ROWS].tobytes() for i in range(0, len(rows), ROWS)]

    def processes(self) -> ProcessesSampled:
        """Return the capture's progress and what the processes use."""
        return ProcessesSampled(
            self._observation.capture_report(), self._usage.memory(), self._usage.processor()
        )
