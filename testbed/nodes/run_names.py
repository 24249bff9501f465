"""The name of a run on its host: of its control group, its folders and its containers.

It contains the id of the process that drives the run, and the pid namespace in which that is its id. So
what a killed run left can be distinguished from what a live run uses, without keeping a list.
"""

import os
import re
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

_NAME = re.compile(rf"{PREFIX}(\d+)-(\d+)-[0-9a-f]{{8}}", re.ASCII)


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
    found = _NAME.fullmatch(name)
    return found is not None and found[2] == str(_pid_namespace()) and linux.is_over(found[1])


def folders_left(place: Path) -> list[Path]:
    """Return the folders in ``place`` that are named after runs which have ended; no links."""
    return [
        path
        for path in sorted(place.glob(f"{PREFIX}*/"))
        if is_over(path.name) and not path.is_symlink()
    ]


def _pid_namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino
