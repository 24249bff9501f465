"""``testbed doctor``: examine everything on this host that runs depend on."""

import os
import platform
import resource
from typing import Literal

import psutil

from testbed.doctor import containers
from testbed.doctor.attempts import (
    WITHOUT_CAPTURE,
    make_namespaces,
    missing_disciplines,
    open_capture,
    try_in_child,
)
from testbed.doctor.findings import Finding
from testbed.nodes import control_group
from testbed.nodes.user_namespace import REMEDY
from testbed.planning import capacity, memory

LARGEST_DEVICE = memory.NODE + 3 * 4 * memory.CNN
"""Bytes of memory assumed for a device: the CNN with AdaComp."""
ENOUGH_WORKERS = 200
"""The number of workers of the AdaComp paper's experiments."""
_DISCIPLINES: tuple[tuple[str, Literal["limited", "missing"], str], ...] = (
    ("htb", "missing", "rates and the ingress counter"),
    ("u32", "missing", "counting the evaluator's traffic apart from the workers'"),
    ("tbf", "limited", "queues of a length, and all that needs netem"),
    (
        "netem",
        "limited",
        "delay, jitter and loss of links (`clock: virtual` computes them, and needs no netem), and "
        "faults that corrupt packets",
    ),
)
"""Modules of the kernel, with the state of a host that lacks one, and their uses."""


def examine() -> list[Finding]:
    """Return a finding for everything that runs depend on."""
    found = [Finding("kernel", "ok", f"{platform.system()} {platform.release()}")]
    problem = try_in_child(make_namespaces)
    how = "as root" if os.geteuid() == 0 else "in a user namespace"
    found.append(
        Finding("namespaces", "missing", problem, REMEDY)
        if problem
        else Finding("namespaces", "ok", f"user, net, pid, mount, uts and ipc, {how}")
    )
    found.append(_control_groups())
    found += _disciplines(bool(problem))
    if not problem:
        missing = try_in_child(open_capture)
        found.append(
            Finding("packet capture", "limited", missing, WITHOUT_CAPTURE)
            if missing
            else Finding("packet capture", "ok", "AF_PACKET with a ring (TPACKET_V3)")
        )
    found += containers.findings()
    found += _capacity()
    found.append(Finding("processors", "ok", f"{len(os.sched_getaffinity(0))}"))
    return found


def _capacity() -> list[Finding]:
    """Return how much there is of each resource that devices take, and for how many it is enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = "without limit" if hard == resource.RLIM_INFINITY else f"to {hard}"
    available = capacity.memory(memory.SHARED, LARGEST_DEVICE)
    total = psutil.virtual_memory().total
    processes, addresses = capacity.processes(), capacity.addresses()
    amounts = [
        (capacity.files(), f"{soft} (may be raised {most})"),
        (processes, f"{processes.room:,.0f} left"),
        (available, f"{available.room / 2**30:.1f} of {total / 2**30:.1f} GiB available"),
        (addresses, f"{addresses.room:,.0f} links"),
    ]
    found = [
        _room(limit.name, limit, f"{amount}: up to {_workers(limit):,} workers")
        for limit, amount in amounts
    ]
    least = capacity.least(limit for limit, _ in amounts)
    text = (
        f"up to {_workers(least):,} in namespaces with the CNN and AdaComp, limited by {least.name}"
    )
    return [*found, _room("workers", least, text)]


def _workers(limit: capacity.Limit) -> int:
    """Return the number of workers that there is room for beside the server and the evaluator."""
    return max(0, limit.devices - 2)


def _room(what: str, limit: capacity.Limit, text: str) -> Finding:
    """Return a finding that is ``ok`` if there is room for ``ENOUGH_WORKERS``."""
    enough = _workers(limit) >= ENOUGH_WORKERS
    return Finding(what, "ok" if enough else "limited", text, "" if enough else limit.remedy)


def _control_groups() -> Finding:
    places = control_group.own_groups()
    group = control_group.create()
    if group is not None:
        group.remove()
        return Finding("control groups", "ok", f"v{group.version}, writable")
    versions = ", ".join(f"v{place.version}" for place in places) or "none"
    return Finding(
        "control groups",
        "limited",
        f"{versions}, not writable: devices are frozen by SIGSTOP",
        "where this is a container: its engine mounts them to be written to if it is privileged"
        if os.geteuid() == 0
        else "run it as root, or delegate a control group to this user (systemd-run --user --scope "
        "-p Delegate=yes)",
    )


def _disciplines(unknown: bool) -> list[Finding]:
    if unknown:
        return [Finding("queueing disciplines", "missing", "unknown without namespaces", REMEDY)]
    missing = missing_disciplines()
    found = []
    for name, state, use in _DISCIPLINES:
        module = f"{'cls' if name == 'u32' else 'sch'}_{name}"
        if name in missing:
            remedy = f"load it (modprobe {module}), or use a kernel built with it, for {use}"
            found.append(Finding(module, state, f"missing ({missing[name]})", remedy))
        else:
            found.append(Finding(module, "ok", f"present, for {use}"))
    return found
