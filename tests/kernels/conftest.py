"""Fixtures of the tests of shaped links, which run where the kernel has a network emulator.

``make kernels`` boots guests with such kernels. Asked and measured values are recorded as properties
of the test, from which a table is made.
"""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.network.shaping import missing_disciplines
from testbed.nodes.linux import inside_network, new_network

GUEST = Path("/run/kernels")
"""A folder that exists only in the guest of ``make kernels``, where tests may change everything."""

Measured = Callable[[str, str, str], None]


@pytest.fixture(scope="session")
def netem() -> None:
    """Skip the test if the kernel has no network emulator or the user is not root."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces are made and entered by root")
    network = new_network()
    with inside_network(network):
        missing = missing_disciplines()
    os.close(network)
    if missing:
        pytest.skip(f"this kernel lacks {missing}: `make kernels` boots one that has it")


@pytest.fixture
def measured(record_property: Callable[[str, object], None]) -> Measured:
    """A function that records an asked and a measured value for the table."""

    def note(what: str, asked: str, found: str) -> None:
        record_property("measured", json.dumps([what, asked, found]))
        print(f"{what}: asked {asked}, measured {found}")

    return note


def qdiscs(process: int, interface: str = "eth0") -> dict[str, dict[str, Any]]:
    """Return the queueing disciplines, as tc reports them, of an interface in a process's namespace."""
    command = ["nsenter", f"--net=/proc/{process}/ns/net", "tc", "-s", "-j", "qdisc", "show", "dev"]
    shown = subprocess.run([*command, interface], capture_output=True, text=True, check=True)
    return {one["kind"]: one for one in json.loads(shown.stdout)}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print measured values and failures at once: a guest may end before pytest's summary."""
    if report.when != "call" or not GUEST.exists():
        return
    with Path("/dev/console").open("w") as console:
        for name, value in report.user_properties:
            if name == "measured":
                console.write(f"\n{': '.join(json.loads(str(value)))}")
        if report.failed:
            console.write(f"\n{report.longreprtext}")
        console.write("\n")
