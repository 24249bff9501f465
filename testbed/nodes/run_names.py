"""What a run calls itself on its host: the name of its control group, its folder, its containers.

The first part is the process that drives the run, so that what a killed run left can be told from
what a living one uses, without any list that would have to be kept.
"""

import os
import secrets
from pathlib import Path

PREFIX = "testbed-"
"""Everything that a run makes on its host begins with this; ``testbed clean`` looks for it."""


def new() -> str:
    """A name for the run that this process drives."""
    return f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"


def of(process: int) -> str:
    """Pattern of the names that a process gives to the runs that it drives."""
    return f"{PREFIX}{process}-*"


def is_over(name: str) -> bool:
    """Whether the process that made this name has ended (as a zombie, too); False for other names."""
    maker = name.removeprefix(PREFIX).split("-")[0]
    if not name.startswith(PREFIX) or not maker.isdigit():
        return False
    try:
        state = Path("/proc", maker, "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"
