"""Check, before anything is started, that this host can carry out runs."""

import os
import resource
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from testbed.doctor import planned_containers
from testbed.doctor.attempts import (
    WITHOUT_CAPTURE,
    make_namespaces,
    missing_disciplines,
    open_capture,
    refused_sysctl,
    try_in_child,
)
from testbed.errors import DataError, HostError, SpecError
from testbed.learning.data import datasets
from testbed.planning import capacity
from testbed.planning.encoding_check import check_encoding
from testbed.planning.halves import check_halves
from testbed.planning.images import share_out
from testbed.planning.mean_times import class_means
from testbed.planning.plan import Plan
from testbed.planning.plans import AnyPlan
from testbed.planning.program_plan import ProgramPlan, missing_programs
from testbed.training.times import PURPOSES

DISK_PER_UPDATE = 120
"""The most bytes that an update takes in the run directory, journal and Parquet together."""
DISK_PER_RUN = 32 * 2**20
CAPTURE_PER_UPDATE = 8_000
"""Bytes of captured headers assumed per update; 5,800 were measured for the CNN's full vectors."""
_DISCIPLINES = {"netem": "the network emulator", "tbf": "the token bucket filter"}


def problems(
    plans: Sequence[AnyPlan], directory: Path, *, spread: bool = False
) -> Iterator[HostError | DataError]:
    """Yield the reasons why this host cannot carry out the runs, each when it has been looked for.

    Args:
        plans: those of one spec.
        directory: the folder below which they will write.
        spread: True if other hosts have devices, too: ``check_room`` looks for room, once it is known
            which.

    Raises:
        SpecError: the experiment does not fit its data, or a plug-in's algorithm fails, on any host.
    """
    first = plans[0]
    if isinstance(first, ProgramPlan):
        yield from map(HostError, missing_programs(first.spec))
    if first.spec.engine == "emulation":
        yield from _of_nodes(plans, spread=spread)
    elif isinstance(first, Plan) and first.spec.simulation.device == "cuda":
        yield from _raised_by(_check_accelerator)
    if not spread:
        yield from _raised_by(check_memory, plans)
    yield from _raised_by(_check_disk, plans, directory)
    # For this check, runs differ only in the number of devices that compute.
    learning = [one for one in plans if isinstance(one, Plan)]
    for one in {one.computing: one for one in reversed(learning)}.values():
        try:
            check_data(one)
        except DataError as error:
            yield error
            return  # all runs have the same data
    for one in learning:
        check_halves(one)
        check_encoding(one)


def _raised_by(check: Callable[..., None], *arguments: Any) -> Iterator[HostError]:
    try:
        check(*arguments)
    except HostError as error:
        yield error


def check_room(plan: AnyPlan, elsewhere: int) -> None:
    """Check that this host has room for its devices of a run that is spread over hosts.

    Args:
        elsewhere: the number of devices that the other hosts have.

    Raises:
        HostError: it has not.
    """
    check_processes(len(plan.network.devices) - elsewhere)
    check_memory([plan], elsewhere)


def _of_nodes(plans: Sequence[AnyPlan], *, spread: bool) -> Iterator[HostError]:
    """Yield the reasons why the runs' devices and links cannot be made."""
    yield from _raised_by(_raise_open_files, max(plan.open_files for plan in plans))
    if not spread:
        yield from _raised_by(check_processes, max(len(plan.network.devices) for plan in plans))
    problem = try_in_child(make_namespaces)
    if problem:
        yield HostError(f"this host cannot make namespaces: {problem}")
        return  # the rest is looked for in namespaces
    if plans[0].spec.devices.runtime == "docker":
        yield from _raised_by(planned_containers.check, plans)
    yield from _raised_by(_check_sysctls, plans)
    yield from _raised_by(_check_links, plans)
    yield from _raised_by(_check_faults, plans)
    yield from _raised_by(_check_capture, plans)


def _check_sysctls(plans: Sequence[AnyPlan]) -> None:
    """Check that the settings of TCP are such as the kernel takes."""
    wanted = plans[0].spec.network.tcp_settings({})
    if wanted and (why := refused_sysctl(wanted)):
        raise HostError(f"network.sysctls: {why}: take it out")


def _check_links(plans: Sequence[AnyPlan]) -> None:
    """Check that the links can be shaped as asked."""
    shapes = (shape for plan in plans for one in plan.links for shape in (one.uplink, one.downlink))
    if any(shape.queue is not None for shape in shapes):
        _check_disciplines("queues of links", "remove queue from the experiment", ("tbf",))
    if not any(link.needs_netem for plan in plans for link in plan.links):
        return
    remedy = (
        "use `clock: virtual`, under which delays are computed, or remove delay, jitter and loss from "
        "the experiment"
    )
    spec = plans[0].spec
    parts = spec.network, spec.network.server, *spec.network.clusters, *spec.devices.classes
    if any(part is not None and part.profile is not None for part in parts):
        remedy += " (`delay: 0s`, `jitter: 0s`, `loss: 0%` beside a profile, whose rates stay)"
    if spec.network.graph is not None:
        remedy += " and set network.graph.delay to 0s, which leaves its lengths out"
    _check_disciplines("delay, jitter and loss of links", remedy, ("netem", "tbf"))


def _check_capture(plans: Sequence[AnyPlan]) -> None:
    """Check that packets can be captured, if they are to be."""
    if any(plan.spec.traffic.capture for plan in plans):
        problem = try_in_child(open_capture)
        if problem:
            raise HostError(f"this host cannot capture packets: {problem}; {WITHOUT_CAPTURE}")


def _check_faults(plans: Sequence[AnyPlan]) -> None:
    """Check that this host can carry out every fault of the runs."""
    for plan in plans:
        kinds = {fault.kind for _, fault in plan.schedule.faults()}
        if "corrupt" in kinds:
            remedy = "remove them from the experiment"
            _check_disciplines("faults that corrupt packets", remedy, ("netem", "tbf"))


def _check_disciplines(features: str, remedy: str, names: Sequence[str]) -> None:
    missing = missing_disciplines()
    for name in names:
        if name in missing:
            raise HostError(
                f"{features} need {_DISCIPLINES[name]}, which this kernel lacks (sch_{name}: "
                f"{missing[name]}): load or build sch_{name}, or {remedy}"
            )


def _check_accelerator() -> None:
    """Check that torch sees a GPU."""
    import torch

    if not torch.cuda.is_available():
        raise HostError(
            "simulation.device is cuda, but torch finds no GPU on this host: use `simulation.device: "
            "cpu`, or install a torch that was built for this host's GPU"
        )


def check_memory(plans: Sequence[AnyPlan], elsewhere: int = 0) -> None:
    """Check that there is enough memory.

    Args:
        elsewhere: the number of workers that other hosts have.
    """
    needed = max(plan.memory - elsewhere * plan.memory_per_device for plan in plans)
    largest = max(plans, key=lambda plan: plan.memory)
    workers = plans[0].spec.devices.workers - elsewhere
    _check_memory_of(workers, needed, largest.shared_memory, largest.memory_per_device)


def check_room_of(devices: int, shared_memory: int, memory_per_device: float) -> None:
    """Check that this host has room for workers or peers of a run that another host has begun.

    Args:
        devices: their number.
        shared_memory, memory_per_device: bytes that they share, and that each of them needs.

    Raises:
        HostError: it has not.
    """
    check_processes(devices)
    needed = shared_memory + devices * memory_per_device
    _check_memory_of(devices, needed, shared_memory, memory_per_device)


def _check_memory_of(workers: int, needed: float, shared: int, per_device: float) -> None:
    limit = capacity.memory(shared, per_device)
    if limit.room < needed:
        fit = max(0, limit.devices - 2)
        raise HostError(
            f"{workers:,} workers need about {needed / 2**30:.1f} GiB of memory, "
            f"and {limit.room / 2**30:.1f} GiB are available, enough for {fit:,}: {limit.remedy}"
        )


def _check_disk(plans: Sequence[AnyPlan], directory: Path) -> None:
    """Check that there is enough room on the disk."""
    within = (directory, *directory.absolute().parents)
    # Not Path.exists, which raises where this user may not look.
    existing = next(place for place in within if os.path.exists(place))  # noqa: PTH110
    free = shutil.disk_usage(existing).free
    room = sum(_room(plan) for plan in plans)
    if free < room:
        raise HostError(
            f"the disk is full: {existing} has {free / 2**20:.0f} MiB free, and the runs may take "
            f"{room / 2**20:.0f} MiB: free some space, or name a folder on another disk by --out"
        )


def _room(plan: AnyPlan) -> int:
    """Return the bytes that a run directory may take; what programs write is not foreseen."""
    if isinstance(plan, ProgramPlan):
        return DISK_PER_RUN
    traffic = plan.spec.traffic
    capture = min(traffic.total_size, CAPTURE_PER_UPDATE * plan.settings.training.updates)
    room = DISK_PER_RUN + DISK_PER_UPDATE * plan.settings.training.updates
    captured = traffic.capture and plan.spec.engine == "emulation"
    return room + capture if captured else room


def check_processes(devices: int) -> None:
    """Check that the processes of ``devices`` devices may be started."""
    limit = capacity.processes()
    if limit.devices < devices:
        needed = limit.per_run + limit.per_device * devices
        raise HostError(
            f"{devices:,} devices need {needed:,} processes and threads, and this host allows "
            f"{limit.room:,.0f} more: {limit.remedy}, or use fewer workers (devices.workers)"
        )


def _raise_open_files(needed: int) -> None:
    """Raise the limit of descriptors of this process, which its children inherit, to ``needed``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise HostError(
            f"the run needs {needed:,} open files, and this user may have {hard:,}: "
            f"{capacity.files().remedy}, or use fewer workers (devices.workers)"
        )
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def check_data(plan: Plan) -> None:
    """Read dataset and traces once, so that errors are reported before anything is started.

    Raises:
        DataError: the dataset is missing or corrupt, or has fewer images than asked for.
        SpecError: a worker's part is smaller than a mini-batch, or a trace cannot be used.
    """
    settings = plan.settings
    data = plan.spec.dataset
    datasets.check(data.choice, data.train_images, data.scaling)
    means = zip(*(class_means(plan, purpose) for purpose in PURPOSES), strict=True)
    for i, (device, seconds) in enumerate(zip(settings.kinds_of_devices, means, strict=True)):
        rates = device.uplink, device.downlink, device.up_trace, device.down_trace
        takes_time = any((*seconds, *rates, device.delay, device.down_delay))
        if settings.timing.clock == "virtual" and not takes_time:
            where = f"devices.classes.{i}" if settings.classes else "clock"
            raise SpecError(
                f"{where}: nothing takes any time (the trace holds only zeros), so the virtual clock "
                "would never advance: give computing or waiting a duration"
            )
    images = share_out(plan).images
    worker, fewest = int(images.argmin()), int(images.min())
    if fewest < settings.training.batch_size:
        raise SpecError(
            f"dataset {settings.dataset}: of {int(images.sum()):,} training images for "
            f"{len(images):,} workers, worker {worker} has {fewest}, fewer than a mini-batch of "
            f"{settings.training.batch_size}: use fewer workers (devices.workers), a smaller "
            "training.batch_size, or another partition"
        )
