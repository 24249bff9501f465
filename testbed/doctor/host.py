"""Check what this host can do, by trying it: before a run, and for ``testbed doctor``."""

import errno
import os
import platform
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import psutil

from testbed.doctor import containers
from testbed.doctor.findings import Finding
from testbed.errors import HostError
from testbed.faults.schedule import Schedule
from testbed.nodes import control_group, linux
from testbed.nodes.user_namespace import REMEDY, enter_user_namespace
from testbed.planning import capacity, memory
from testbed.planning.plan import Plan

DISK_PER_UPDATE = 120
"""The most bytes that an update takes in the run directory, journal and Parquet together."""
DISK_PER_RUN = 32 * 2**20
LARGEST_DEVICE = memory.NODE + 3 * 4 * memory.PARAMETERS["cnn"]
"""Bytes of memory that ``doctor`` assumes for a device: the CNN with AdaComp."""
CAPTURE_PER_UPDATE = 8_000
"""Bytes of captured headers assumed per update; 5,800 were measured for the CNN's full vectors."""


_WITHOUT_CAPTURE = "experiments run without it: --set traffic.capture=false"


def check(plans: list[Plan], directory: Path) -> None:
    """Check, before anything is started, that this host can carry the runs out.

    Raises:
        HostError: it cannot; the message says what to do.
    """
    if plans[0].spec.engine == "emulation":
        _check_nodes(plans)
    elif plans[0].spec.simulation.device == "cuda":
        _check_accelerator()
    _check_room(plans, directory)


def _check_nodes(plans: list[Plan]) -> None:
    """Check that the runs' devices can be made."""
    _raise_open_files(max(one.open_files for one in plans))
    _check_processes(max(len(one.links) for one in plans))
    problem = _try_in_child(_make_namespaces)
    if problem:
        raise HostError(f"namespaces cannot be made here: {problem}")
    if plans[0].spec.devices.runtime == "docker":
        containers.check(plans)
    if any(link.uplink.needs_netem for one in plans for link in one.links):
        _need_netem("network.delay and network.loss", "delay and loss")
    _check_faults(plans)
    if any(one.spec.traffic.capture for one in plans):
        problem = _try_in_child(_open_capture)
        if problem:
            raise HostError(f"packets cannot be captured here: {problem}; {_WITHOUT_CAPTURE}")


def _check_faults(plans: list[Plan]) -> None:
    """Check that this host can make every fault of the runs happen."""
    for one in plans:
        schedule = Schedule(one.settings.faults.rules, one.settings.seed, one.settings.workers)
        kinds = {fault.kind for _, fault in schedule.faults()}
        if "corrupt" in kinds:
            _need_netem("faults that corrupt", "them")
        devices = one.spec.devices
        alone = devices.runtime == "docker" and devices.launched == "image"
        if alone and (schedule.longest_absence or one.settings.faults.server_absence is not None):
            raise HostError(
                "a container that has started its own role is removed when that is killed, and cannot "
                "come back: use `launch: fork`, or kill workers for good (without lasting)"
            )


def _need_netem(what: str, these: str) -> None:
    missing = _missing_disciplines()
    if "netem" in missing:
        raise HostError(
            f"{what} need the kernel's network emulator, which this kernel lacks (sch_netem: "
            f"{missing['netem']}): load or build sch_netem, or take {these} out of the experiment"
        )


def _check_accelerator() -> None:
    """Check that torch sees a GPU."""
    import torch

    if not torch.cuda.is_available():
        raise HostError(
            "simulation.device is cuda, and torch sees no GPU here: use `simulation.device: cpu`, or "
            "install a torch that was built for this machine's GPU"
        )


def _check_room(plans: list[Plan], directory: Path) -> None:
    """Check that there is enough memory, and enough room on the disk."""
    needed = max(one.memory for one in plans)
    available = psutil.virtual_memory().available
    if available < needed:
        each = memory.of_device(max(plans, key=lambda one: one.memory).spec)
        fit = max(0, int((available - memory.SHARED) // each) - 2)
        raise HostError(
            f"{plans[0].settings.workers} workers need about {needed / 2**30:.1f} GiB of memory "
            f"and {available / 2**30:.1f} GiB are available, enough for {fit:,}: use fewer workers "
            "(devices.workers)"
        )
    existing = next(p for p in (directory, *directory.absolute().parents) if p.exists())
    free = shutil.disk_usage(existing).free
    room = sum(_room(one) for one in plans)
    if free < room:
        raise HostError(
            f"the disk is full: {existing} has {free / 2**20:.0f} MiB free and the runs may take "
            f"{room / 2**20:.0f} MiB; free some or use --out on another disk"
        )


def _room(one: Plan) -> int:
    """Return the bytes that a run directory may take."""
    traffic = one.spec.traffic
    capture = min(traffic.total_size, CAPTURE_PER_UPDATE * one.settings.training.updates)
    room = DISK_PER_RUN + DISK_PER_UPDATE * one.settings.training.updates
    captured = traffic.capture and one.spec.engine == "emulation"
    return room + capture if captured else room


def examine() -> list[Finding]:
    """Check everything that runs depend on."""
    root = os.geteuid() == 0
    found = [Finding("kernel", "ok", f"{platform.system()} {platform.release()}")]
    problem = _try_in_child(_make_namespaces)
    how = "as root" if root else "in a user namespace"
    found.append(
        Finding("namespaces", "missing", problem, REMEDY)
        if problem
        else Finding("namespaces", "ok", f"user, net, pid, mount, uts and ipc, {how}")
    )
    found.append(_control_groups())
    found += _disciplines(bool(problem))
    if not problem:
        missing = _try_in_child(_open_capture)
        found.append(
            Finding("packet capture", "limited", missing, _WITHOUT_CAPTURE)
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


def _check_processes(devices: int) -> None:
    """Check that the processes of ``devices`` devices may be started."""
    limit = capacity.processes()
    if limit.devices < devices:
        needed = limit.once + limit.each * devices
        raise HostError(
            f"{devices} devices need {needed:,} processes and threads, and {limit.room:,.0f} more may "
            f"be started here: {limit.remedy}, or use fewer workers"
        )


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
    missing = _missing_disciplines()
    found = []
    for name, (state, use) in uses.items():
        module = f"{'cls' if name == 'u32' else 'sch'}_{name}"
        if name in missing:
            remedy = f"modprobe {module}, or a kernel built with it; it is for {use}"
            found.append(Finding(module, state, f"absent ({missing[name]})", remedy))  # type: ignore[arg-type]
        else:
            found.append(Finding(module, "ok", f"present; for {use}"))
    return found


def _raise_open_files(needed: int) -> None:
    """Raise the limit of descriptors of this process, which its children inherit, to ``needed``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise HostError(
            f"so many devices need {needed} open files and this user may have {hard}: raise the "
            "hard limit (ulimit -Hn as root, or /etc/security/limits.conf) or use fewer workers"
        )
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _make_namespaces() -> None:
    enter_user_namespace()
    try:
        linux.unshare(
            linux.CLONE_NEWNET
            | linux.CLONE_NEWNS
            | linux.CLONE_NEWPID
            | linux.CLONE_NEWUTS
            | linux.CLONE_NEWIPC
        )
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise HostError(
                "the limit on namespaces is reached (sysctl user.max_net_namespaces and its like)"
            ) from error
        raise HostError(
            f"{error}; inside another container, start it with --privileged or CAP_SYS_ADMIN"
        ) from error


def _open_capture() -> None:
    """Open a capture as a run does; this leaves the calling process in namespaces of its own."""
    from traffic import filters
    from traffic.ring import Ring

    _make_namespaces()
    Ring("lo", filters.everything(96), 96).close()


def _missing_disciplines() -> dict[str, str]:
    from testbed.network.shaping import missing_disciplines

    missing: dict[str, str] = {}

    def ask() -> str:
        _make_namespaces()
        return "\n".join(f"{name}\t{why}" for name, why in missing_disciplines().items())

    for line in _try_in_child(ask).splitlines():
        name, _, why = line.partition("\t")
        missing[name] = why
    return missing


def _try_in_child(attempt: Callable[[], str | None]) -> str:
    """Run an attempt that changes its process in a child; return its text, or that of its error."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = attempt() or ""
        except Exception as error:
            text = str(error)
        os.write(writing, text.encode()[:4096])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(pid, 0)
    return text
