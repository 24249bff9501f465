"""``testbed doctor``: what this host can do, thing by thing."""

import os
import platform
import resource

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

LARGEST_DEVICE = memory.NODE + 3 * 4 * memory.PARAMETERS["cnn"]
"""Bytes of memory assumed for a device: the CNN with AdaComp."""


def examine() -> list[Finding]:
    """Check everything that runs depend on."""
    root = os.geteuid() == 0
    found = [Finding("kernel", "ok", f"{platform.system()} {platform.release()}")]
    problem = try_in_child(make_namespaces)
    how = "as root" if root else "in a user namespace"
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
    room = psutil.virtual_memory()
    limits = {
        f"{soft} (may be raised to {hard})": capacity.files(),
        "left": capacity.processes(),
        f"of {room.total / 2**30:.1f} GiB available": capacity.memory(
            memory.SHARED, LARGEST_DEVICE
        ),
        "links": capacity.addresses(),
    }
    found = []
    for how, limit in limits.items():
        workers = max(0, limit.devices - 2)
        told = {"memory": f"{limit.room / 2**30:.1f} {how}", "open files": how}
        text = told.get(limit.what, f"{limit.room:,.0f} {how}")
        enough = workers >= 200
        found.append(
            Finding(
                limit.what,
                "ok" if enough else "limited",
                f"{text}: up to {workers:,} workers",
                "" if enough else limit.remedy,
            )
        )
    least = capacity.least(limits.values())
    fit = max(0, least.devices - 2)
    text = f"up to {fit:,} in namespaces with the CNN and AdaComp; what ends it is {least.what}"
    found.append(Finding("workers", "ok" if fit >= 200 else "limited", text, least.remedy))
    return found


def _control_groups() -> Finding:
    places = control_group.hierarchies()
    group = control_group.create()
    if group is not None:
        group.remove()
        return Finding("control groups", "ok", f"v{group.version}, writable")
    versions = ", ".join(f"v{place.version}" for place in places) or "none"
    return Finding(
        "control groups",
        "limited",
        f"{versions}, not writable: devices are frozen by SIGSTOP",
        "run as root, or delegate a cgroup to this user (systemd-run --user --scope -p Delegate=yes)",
    )


def _disciplines(unknown: bool) -> list[Finding]:
    uses = {
        "htb": ("missing", "rates and the ingress counter"),
        "u32": ("missing", "telling the evaluator's traffic from the workers'"),
        "netem": ("limited", "network.delay, network.loss and faults that corrupt"),
    }
    if unknown:
        return [Finding("queueing disciplines", "missing", "unknown without namespaces", REMEDY)]
    missing = missing_disciplines()
    found = []
    for name, (state, use) in uses.items():
        module = f"{'cls' if name == 'u32' else 'sch'}_{name}"
        if name in missing:
            remedy = f"modprobe {module}, or a kernel built with it; it is for {use}"
            found.append(Finding(module, state, f"absent ({missing[name]})", remedy))  # type: ignore[arg-type]
        else:
            found.append(Finding(module, "ok", f"present; for {use}"))
    return found
