"""The name of a run on its host: of its control group, its folder and its containers.

It contains the id of the process that drives the run, and the pid namespace in which that is its id. So
what a killed run left can be distinguished from what a live run uses, without keeping a list.
"""

import os
import secrets
from pathlib import Path

from testbed.nodes import linux

PREFIX = "testbed-"
"""The beginning of every name that a run uses on its host; ``testbed clean`` looks for it."""

TITLES = "testbed:"
"""The beginning of the titles of a run's processes, of which a device's goes on with its name."""
AGENT, FORK_SERVER = f"{TITLES}agent", f"{TITLES}fork-server"
HOST_AGENT, RELAY, ENTRY = f"{TITLES}host-agent", f"{TITLES}relay", f"{TITLES}exec"
CAPTURE, BACKGROUND = f"{TITLES}capture", f"{TITLES}background"


def new() -> str:
    """Return a new name for the run that this process drives."""
    return f"{PREFIX}{os.getpid()}-{_pid_namespace()}-{secrets.token_hex(4)}"


def pattern(process: int) -> str:
    """Return a glob pattern that matches the names of runs that a process drives."""
    return f"{PREFIX}{process}-*"


def is_over(name: str) -> bool:
    """Return True if the process in this name has ended or is a zombie; False for other names.

    It cannot be seen from here if a process of another pid namespace has ended: False.
    """
    maker, *rest = name.removeprefix(PREFIX).split("-")
    if not name.startswith(PREFIX) or not maker.isdigit():
        return False
    if len(rest) > 1 and rest[0] != str(_pid_namespace()):
        return False
    return linux.is_over(maker)


def _pid_namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino
