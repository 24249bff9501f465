"""The capture of one link's traffic: a process that runs the command line of ``traffic``.

It must not wait for anything else, and it belongs to the run's pid namespace, so that it always ends
with the run.
"""

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from testbed.channel import readable
from testbed.errors import HostError
from testbed.messages.agent_reports import CaptureReport
from testbed.messages.planned_nodes import PlannedTraffic
from testbed.nodes.forked_process import ForkedCommand
from testbed.nodes.run_names import CAPTURE
from traffic import cli as command_line

SNAP_LENGTH = 96
"""Bytes kept of each packet: Ethernet, IPv4 and TCP with all options take 94."""
START_TIMEOUT = 300.0
"""Seconds until the capture must receive packets; if it ends earlier, that is noticed at once."""
_STOP_TIMEOUT = 20.0
REPORT_PERIOD = 1.0
"""Seconds between two progress reports of the capture, if they are asked for."""


class CaptureProcess:
    """The process that captures one link."""

    def __init__(
        self,
        interface: str,
        file: Path,
        plan: PlannedTraffic,
        without: Sequence[str],
        address: str,
    ) -> None:
        """Start to capture in this process's network namespace.

        Args:
            interface: the router's end of the link.
            file: the first file to write.
            without: IPv4 addresses of devices whose traffic is left out.
            address: of the device at the other end.

        Raises:
            HostError: the capture cannot be started; the message says why.
        """
        arguments = [
            *("capture", "--json", "--until-input-ends"),
            *("--interface", interface, "--write", str(file)),
            *("--snap-length", str(SNAP_LENGTH)),
            *("--file-size", str(plan["file_size"]), "--total-size", str(plan["total_size"])),
            *(part for host in without for part in ("--exclude-host", host)),
        ]
        if plan.get("metrics"):
            arguments += ["--report-every", f"{REPORT_PERIOD}", "--acknowledgements-to", address]
        self._complained = False
        self._told = b""
        self._report: CaptureReport | None = None
        self._process = ForkedCommand(CAPTURE, lambda: command_line.main(arguments))
        if not readable(self._process.output, START_TIMEOUT):
            self._process.kill()
        if not self._read():
            _, complaint = self._process.finish(_STOP_TIMEOUT)
            raise HostError(f"the capture does not start: {_last_line(complaint)}")
        os.set_blocking(self._process.output, False)

    @property
    def process(self) -> int:
        """Its process id."""
        return self._process.process

    def _read(self) -> bytes:
        return os.read(self._process.output, 65536)

    def report(self) -> CaptureReport | None:
        """Return its latest progress report; None before the first."""
        if self._process.poll() is not None:
            return self._report
        with contextlib.suppress(BlockingIOError):
            self._told += self._read()
        *lines, self._told = self._told.split(b"\n")
        if lines:
            self._report = json.loads(lines[-1])
        return self._report

    def complaint(self) -> str | None:
        """Return what went wrong, once; None if nothing did, or it was returned."""
        if self._complained or self._process.poll() is None:
            return None
        self._complained = True
        return "the capture ended before the run did"

    def stop(self) -> CaptureReport:
        """End the capture, and return its last report."""
        self._complained = True
        told, complaint = self._process.finish(_STOP_TIMEOUT)
        try:
            result: CaptureReport = json.loads(told.splitlines()[-1])
        except (ValueError, IndexError):
            status = self._process.status
            return {"error": f"it ended with status {status}: {_last_line(complaint)}"}
        self._report = result
        return result

    def abandon(self) -> None:
        """End the capture of a run that was cut short, so that its files are closed."""
        if self._process.poll() is None:
            self._process.finish(3.0)


def _last_line(complaint: bytes) -> str:
    """Return the last line of a command's standard error, without the command's name."""
    lines = complaint.decode(errors="replace").strip().splitlines() or ["it says nothing"]
    return lines[-1].removeprefix("traffic: ")[:500]
