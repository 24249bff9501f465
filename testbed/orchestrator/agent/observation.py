"""Watch a run's traffic from inside the routers' network namespaces; the agent owns it.

The capture is a process of its own, running the command line of ``traffic``: it must not wait for
anything else, and it belongs to the run's pid namespace, so that it always ends with the run.
Counters are read by the agent, which holds a netlink socket in every device's namespace.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.channel import readable
from testbed.errors import HostError
from testbed.messages.events import TrafficStopped
from testbed.network import shaping
from testbed.network.building import DEVICE_INDEX
from testbed.network.graph import Network
from testbed.nodes.linux import inside_network
from traffic.counters import Counts, Meter, read_all

SNAP_LENGTH = 96
"""Bytes kept of each packet: Ethernet, IPv4 and TCP with all options take 94."""
START_TIMEOUT = 300.0
"""Seconds until the capture must receive packets; if it ends earlier, that is noticed at once."""
QUIET = 0.2
"""Seconds without a frame after which the link counts as quiet."""
QUIET_TIMEOUT = 5.0
_STOP_TIMEOUT = 20.0
REPORT_PERIOD = 1.0
"""Seconds between two progress reports of the capture, if they are asked for."""
ROWS = 1000
"""Rows of counters in one message."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The devices whose traffic is captured, counted and left out.

    Attributes:
        observed: the device whose link is captured.
        devices: the devices whose ingress is counted; ``observed`` is one of them.
        apart: the devices whose traffic is left out.
    """

    observed: str
    devices: Sequence[str]
    apart: Sequence[str]


class Observation:
    """Counters and capture of one run.

    Attributes:
        period: seconds between two samples of all counters.
    """

    def __init__(
        self,
        plan: Mapping[str, Any],
        network: Network,
        counted: Counted,
        namespaces: Mapping[str, int],
    ) -> None:
        """Open the counters and start the capture; no device may have sent anything yet.

        Earlier packets, the probe's, are in neither.

        Args:
            plan: ``directory`` of the capture's files, ``capture``, ``file_size`` and ``total_size``
                in bytes, ``period`` in seconds; ``metrics``, if the capture is to report its progress.
            network: of the run.
            counted: the devices to count, and the one to capture.
            namespaces: descriptor of each node's network namespace, by name.

        Raises:
            HostError: the capture cannot be started; the message says why.
        """
        self.period = float(plan["period"])
        self._ingress: dict[str, Meter] = {}
        self._meters: list[Meter] = []
        for link in network.links:
            if link.node in counted.devices:
                # At the router's end, where all traffic into the device passes.
                with inside_network(namespaces[link.router]):
                    meter = Meter(DEVICE_INDEX + link.index, shaping.COUNTED, from_now=True)
                self._ingress[link.node] = meter
                self._meters.append(meter)
                continue
            with inside_network(namespaces[link.node]):
                handle = shaping.COUNTED if link.uplink.shapes else None
                interface = DEVICE_INDEX + (link.index if link.node in network.routers else 0)
                self._meters.append(Meter(interface, handle, from_now=True))
        self._observed = counted.observed
        self._capture: subprocess.Popen[bytes] | None = None
        self._complained = False
        self._told = b""
        self._report: dict[str, Any] | None = None
        if plan["capture"]:
            link = network.link(counted.observed)
            apart = [network.link(device).address for device in counted.apart]
            with inside_network(namespaces[link.router]):
                self._start(link.interface, Path(plan["directory"]), plan, apart, link.address)

    def _start(
        self,
        interface: str,
        directory: Path,
        plan: Mapping[str, Any],
        without: Sequence[str],
        address: str,
    ) -> None:
        command = [
            *(sys.executable, "-m", "traffic", "capture", "--json", "--until-input-ends"),
            *("--interface", interface, "--write", str(directory / "ingress.pcapng")),
            *("--snap-length", str(SNAP_LENGTH)),
            *("--file-size", str(plan["file_size"]), "--total-size", str(plan["total_size"])),
            *(part for host in without for part in ("--exclude-host", host)),
        ]
        if plan.get("metrics"):
            command += ["--report-every", f"{REPORT_PERIOD}", "--acknowledgements-to", address]
        self._capture = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self._capture.stdout is not None
        if not readable(self._capture.stdout.fileno(), START_TIMEOUT):
            self._capture.kill()
        if not self._capture.stdout.readline():
            _, complaint = self._capture.communicate()
            raise HostError(f"the capture does not start: {_last_line(complaint)}")
        os.set_blocking(self._capture.stdout.fileno(), False)

    @property
    def capture_process(self) -> int | None:
        """The capture's process id; None without a capture."""
        return self._capture.pid if self._capture else None

    def capture_report(self) -> dict[str, Any] | None:
        """Return the capture's latest progress report; None before the first."""
        if self._capture is None or self._capture.poll() is not None:
            return self._report
        assert self._capture.stdout is not None
        with contextlib.suppress(BlockingIOError):
            self._told += os.read(self._capture.stdout.fileno(), 65536)
        *lines, self._told = self._told.split(b"\n")
        if lines:
            self._report = json.loads(lines[-1])
        return self._report

    def read_ingress(self) -> dict[str, float]:
        """Return the sum of the counters of ingress over all counted devices; see ``together``."""
        return together(meter.read() for meter in self._ingress.values())

    def read_each(self) -> dict[str, int]:
        """Return the bytes that entered each of the counted devices."""
        return {device: meter.read().class_bytes for device, meter in self._ingress.items()}

    def sample(self) -> list[bytes]:
        """Read all counters: a row of ``traffic.counters.COUNTS`` per link, ``ROWS`` rows per part."""
        rows = read_all(self._meters)
        return [rows[i : i + ROWS].tobytes() for i in range(0, len(rows), ROWS)]

    def complaint(self) -> str | None:
        """Return what went wrong with the capture, once; None if nothing did, or it was returned."""
        if self._complained or self._capture is None or self._capture.poll() is None:
            return None
        self._complained = True
        return "the capture ended before the run did"

    def stop(self, egress: dict[str, float] | None) -> TrafficStopped:
        """Wait until the link is quiet and stop; return what the capture and the counters counted.

        Args:
            egress: the server's, to go with it.
        """
        before = self.read_ingress()
        deadline = time.monotonic() + QUIET_TIMEOUT
        while time.monotonic() < deadline:
            time.sleep(QUIET)
            now = self.read_ingress()
            if now["frames"] == before["frames"]:
                break
            before = now
        capture = self._stop_capture()
        counter = together([self._ingress[self._observed].read()])
        return TrafficStopped(capture, counter, self.read_ingress(), self.read_each(), egress)

    def _stop_capture(self) -> dict[str, Any] | None:
        if self._capture is None:
            return None
        self._complained = True
        try:
            told, complaint = self._capture.communicate(timeout=_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._capture.kill()
            told, complaint = self._capture.communicate()
        try:
            result: dict[str, Any] = json.loads(told.splitlines()[-1])
        except (ValueError, IndexError):
            status = self._capture.returncode
            return {"error": f"it ended with status {status}: {_last_line(complaint)}"}
        self._report = result
        return result

    def abandon(self) -> None:
        """End the capture of a run that was cut short, so that its files are closed."""
        if self._capture is not None and self._capture.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._capture.communicate(timeout=3)


def together(readings: Iterable[Counts]) -> dict[str, float]:
    """Add readings up: ``bytes``, ``frames`` and ``dropped``, with the ``time`` of the last reading."""
    rows = list(readings)
    return {
        "time": rows[-1].time,
        "bytes": sum(row.class_bytes for row in rows),
        "frames": sum(row.class_frames for row in rows),
        "dropped": sum(row.class_dropped for row in rows),
    }


def _last_line(complaint: bytes) -> str:
    """Return the last line of a command's standard error, without the command's name."""
    lines = complaint.decode(errors="replace").strip().splitlines() or ["it says nothing"]
    return lines[-1].removeprefix("traffic: ")[:500]
