"""Watch a run's traffic from inside the routers' network namespaces; the agent owns it.

Each captured link has a process of its own (``capturing``). Counters are read by the agent, which holds
a netlink socket in every device's namespace.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from testbed.messages.agent_reports import CaptureReport, IngressRead, TrafficStopped, summed
from testbed.messages.planned_nodes import PlannedTraffic
from testbed.network import shaping
from testbed.network.building import DEVICE_INDEX, Queues
from testbed.network.topology import Direction, Network
from testbed.nodes.linux import inside_network
from testbed.orchestrator.agent.background_traffic import BackgroundTraffic
from testbed.orchestrator.agent.capturing import CaptureProcess
from testbed.telemetry.traffic_files import capture_file
from traffic.counters import COUNTS, Counts, Meter, read_all

QUIET = 0.2
"""Seconds without a frame after which the link counts as quiet."""
QUIET_TIMEOUT = 5.0
ROWS = 1000
"""Rows of counters in one message."""
_ATTEMPTS = 5
"""The most readings of the counters until no background traffic arrives meanwhile."""


def class_meter(network: Network, queues: Queues, direction: Direction, interface: int) -> Meter:
    """Return the meter of a direction's class; the current namespace is that of its sender.

    What the queues of pairs drop is not sampled.
    """
    splits = network.shape(direction).holds_packets and direction not in queues.fair
    dropping = shaping.SPLITTER if splits else None
    return Meter(interface, shaping.COUNTED, dropping, from_now=True)


class Observation:
    """Counters and capture of one run."""

    def __init__(
        self,
        plan: PlannedTraffic,
        network: Network,
        queues: Queues,
        namespaces: Mapping[str, int],
        background: BackgroundTraffic | None = None,
    ) -> None:
        """Open the counters and start the capture; no device may have sent anything yet.

        Earlier packets, the probe's, are in neither.

        Args:
            queues: at the ends of links, with the devices to count, and those to capture.
            namespaces: descriptor of each node's network namespace, by name.
            background: the run's background traffic, which is no ingress.

        Raises:
            HostError: the capture cannot be started; the message says why.
        """
        self._background = background
        self.period = float(plan["period"])
        self._ingress: dict[str, Meter] = {}
        self._meters: list[Meter] = []
        for link in network.links:
            # What is on another host is counted there.
            if (link.router if link.node in queues.counted else link.node) not in namespaces:
                continue
            if link.node in queues.counted:
                # At the router's end, where all traffic into the device passes.
                with inside_network(namespaces[link.router]):
                    near = DEVICE_INDEX + link.index
                    meter = class_meter(network, queues, (link.index, False), near)
                self._ingress[link.node] = meter
                self._meters.append(meter)
                continue
            with inside_network(namespaces[link.node]):
                interface = DEVICE_INDEX + (link.index if link.node in network.routers else 0)
                self._meters.append(
                    class_meter(network, queues, (link.index, True), interface)
                    if link.uplink.shapes
                    else Meter(interface, None, from_now=True)
                )
        self._captured = queues.captured
        self._apart_from_sums = set(queues.above)
        self._captures: dict[str, CaptureProcess] = {}
        if plan["capture"]:
            for device in queues.captured:
                own = [queues.local[device]] if device in queues.local else []
                own += queues.above.get(device, ())
                without = [network.link(other).address for other in (*queues.apart, *own)]
                link = network.link(device)
                name = capture_file(None if len(queues.captured) == 1 else device)
                file = Path(plan["directory"]) / name
                with inside_network(namespaces[link.router]):
                    self._captures[device] = CaptureProcess(
                        link.interface, file, plan, without, link.address
                    )

    @property
    def counts_ingress(self) -> bool:
        """Whether this host has a counted device's router."""
        return bool(self._ingress)

    @property
    def capture_processes(self) -> list[int]:
        """The captures' process ids."""
        return [capture.process for capture in self._captures.values()]

    def capture_report(self) -> CaptureReport | None:
        """Return the captures' latest progress reports, added up; None before the first."""
        return summed({device: capture.report() for device, capture in self._captures.items()})

    def read_ingress(self) -> dict[str, float]:
        """Return the sum of the counters of ingress over all counted devices; see ``together``.

        Background traffic is in it.
        """
        return self._sum({device: meter.read() for device, meter in self._ingress.items()})

    def _sum(self, readings: Mapping[str, Counts]) -> dict[str, float]:
        return together(
            reading for device, reading in readings.items() if device not in self._apart_from_sums
        )

    def read(self, egress: dict[str, float] | None) -> IngressRead:
        """Read the counters of ingress; with several servers, also those of each."""
        raw, background = self._read_both()
        readings = self._without(background, raw)
        each = None
        if len(self._captured) > 1:
            each = {device: readings[device].class_bytes for device in self._captured}
        return IngressRead(self._sum(readings), egress, each, background)

    def _read_both(self) -> tuple[dict[str, Counts], list[int | None] | None]:
        """Read the counters of ingress, and the background traffic that has arrived at that moment."""
        if self._background is None:
            return {device: meter.read() for device, meter in self._ingress.items()}, None
        background = self._background.received()
        for _ in range(_ATTEMPTS):
            before = background
            readings = {device: meter.read() for device, meter in self._ingress.items()}
            background = self._background.received()
            if background == before:
                break
        return readings, background

    def _without(
        self, background: Sequence[int | None] | None, readings: Mapping[str, Counts]
    ) -> Mapping[str, Counts]:
        """Return readings of the counters of ingress without background traffic."""
        if self._background is None or background is None:
            return readings
        found = {}
        for device, reading in readings.items():
            size, frames = self._background.into(background, device)
            found[device] = reading._replace(
                class_bytes=reading.class_bytes - size, class_frames=reading.class_frames - frames
            )
        return found

    def sample(self) -> list[bytes]:
        """Read all counters: a row of ``traffic.counters.COUNTS`` per link, ``ROWS`` rows per part."""
        rows = read_all(self._meters) if self._meters else np.empty(0, COUNTS)
        return [rows[i : i + ROWS].tobytes() for i in range(0, len(rows), ROWS)]

    def complaint(self) -> str | None:
        """Return what went wrong with a capture, once; None if nothing did, or it was returned."""
        found = (capture.complaint() for capture in self._captures.values())
        return next((one for one in found if one), None)

    def _passed(self) -> tuple[float, list[int | None] | None]:
        """Return how many frames have entered the counted devices, and what has arrived elsewhere."""
        background = self._background.received() if self._background else None
        return self.read_ingress()["frames"] if self._ingress else 0.0, background

    def wait_until_quiet(self) -> None:
        """Wait until nothing more arrives that is counted."""
        before = self._passed()
        deadline = time.monotonic() + QUIET_TIMEOUT
        while time.monotonic() < deadline:
            time.sleep(QUIET)
            now = self._passed()
            if now == before:
                break
            before = now

    def stop(
        self, egress: dict[str, float] | None, isolate: Callable[[Sequence[str]], None]
    ) -> TrafficStopped:
        """Wait until the link is quiet and stop; return what the capture and the counters counted.

        Args:
            egress: the servers', to go with it.
            isolate: lets nothing reach devices any more.
        """
        self.wait_until_quiet()
        # Kernels still send for the sockets of killed processes, at ever longer intervals: what came
        # between the capture's end and the reading of the counters would be in one of them only.
        isolate(self._captured)
        self.wait_until_quiet()
        captures = {device: capture.stop() for device, capture in self._captures.items()}
        first, *others = self._captured
        readings, background = self._read_both()
        ingress = self._without(background, readings)
        return TrafficStopped(
            captures.get(first),
            together([readings[first]]),
            self._sum(ingress),
            {device: reading.class_bytes for device, reading in ingress.items()},
            egress,
            {
                device: {"capture": captures.get(device), "counter": together([readings[device]])}
                for device in others
            },
            background,
            self._background.sent if self._background else None,
        )

    def abandon(self) -> None:
        """End the captures of a run that was cut short, so that their files are closed."""
        for capture in self._captures.values():
            capture.abandon()


def together(readings: Iterable[Counts]) -> dict[str, float]:
    """Add readings up: ``bytes``, ``frames`` and ``dropped``, with the ``time`` of the last reading."""
    rows = list(readings)
    return {
        "time": rows[-1].time,
        "bytes": sum(row.class_bytes for row in rows),
        "frames": sum(row.class_frames for row in rows),
        "dropped": sum(row.class_dropped for row in rows),
    }
