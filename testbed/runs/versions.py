"""The versions, commit and host of a run, which are written into every run directory."""

import functools
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import psutil

from testbed.version import VERSION

_PACKAGES = ("torch", "numpy", "pyroute2", "pyarrow", "pydantic")


def versions() -> dict[str, str]:
    """Return versions of the testbed, of Python and of the packages that results may depend on."""
    return {"testbed": VERSION, "python": platform.python_version(), **_of_packages()}


@functools.cache
def _of_packages() -> dict[str, str]:
    """Return the versions of ``_PACKAGES``, for which their whole descriptions are parsed: 20 ms."""
    return {name: importlib.metadata.version(name) for name in _PACKAGES}


def commit() -> str | None:
    """Return the commit of the source tree, ``-dirty`` if it was changed; None outside a checkout."""
    here = Path(__file__).parent
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--match="],
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip() or None


def host() -> dict[str, object]:
    """Describe this machine: name, kernel, processors, memory in bytes."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "name": platform.node(),
        "kernel": f"{platform.system()} {platform.release()}",
        "cpus": len(os.sched_getaffinity(0)),
        "cpu": model,
        "memory_bytes": psutil.virtual_memory().total,
    }
