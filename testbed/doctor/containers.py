"""Check this host's Docker engine: before a run, for ``testbed doctor`` and ``testbed clean``."""

import contextlib
from typing import Any

from docker.errors import DockerException

from testbed.containers import engine, image, left_over
from testbed.doctor.findings import Finding
from testbed.errors import HostError
from testbed.experiment.sections.devices import DevicesSpec
from testbed.planning.node_plan import image_name
from testbed.planning.plan import Plan

_NOT_NEEDED = "only devices.runtime=docker needs it"


def check(plans: list[Plan]) -> None:
    """Check that there is a Docker engine with the image, and that it can make the runs' containers.

    Raises:
        HostError: there is none, or it cannot; the message says what to do.
    """
    section = plans[0].spec.devices
    with contextlib.closing(engine.connect()) as client:
        engine.check(client, max(len(one.links) for one in plans))
        # A forked role runs this host's code in any image; a user's own image only has to exist.
        of_this_code = section.image is None or section.launched == "image"
        try:
            image.find_image(client, image_name(plans[0]), of_this_code=of_this_code)
        except DockerException as error:
            raise HostError(engine.explain(error)) from error
        _check_limits(section, client.info())


def _check_limits(section: DevicesSpec, told: dict[str, Any]) -> None:
    """Check limits of processors and memory against what the engine reports of its host."""
    parts = (section, *section.classes)
    cpus, memory = (max(getattr(one, key) or 0 for one in parts) for key in ("cpus", "memory"))
    if cpus and not told.get("CpuCfsQuota"):
        raise HostError(
            "devices.cpus: this kernel cannot limit processors (it was built without "
            "CONFIG_CFS_BANDWIDTH): take it out"
        )
    if cpus > told["NCPU"]:
        raise HostError(
            f"devices.cpus: {cpus:g} is more than the {told['NCPU']} processors of this host: use "
            "fewer, or take it out for all of them"
        )
    if memory > told["MemTotal"]:
        raise HostError(
            f"devices.memory: {memory / 2**30:.1f} GiB is more than the "
            f"{told['MemTotal'] / 2**30:.1f} GiB of this host: use less, or take it out"
        )


def findings() -> list[Finding]:
    """Return findings about the engine, and about the image that belongs to this code."""
    what = "Docker engine"
    try:
        client = engine.connect()
    except HostError as error:
        return [Finding(what, "limited", str(error), _NOT_NEEDED)]
    with contextlib.closing(client):
        try:
            version = client.version()["Version"]
            engine.check(client, 0)
            found = [Finding(what, "ok", f"{version} answers at {engine.address()}")]
        except HostError as error:
            found = [Finding(what, "limited", str(error), _NOT_NEEDED)]
        name = image.default_image()
        try:
            made = image.find_image(client, name)
            found.append(Finding("Docker image", "ok", f"{name} ({made.short_id}) is of this code"))
        except HostError as error:
            found.append(Finding("Docker image", "limited", str(error), _NOT_NEEDED))
    return found


def clean() -> list[str]:
    """Remove containers and folders of runs that are over; return what was removed.

    Raises:
        HostError: there is such a folder, and so perhaps containers, but no engine to ask.
    """
    try:
        with contextlib.closing(engine.connect()) as client:
            removed = [f"container {name}" for name in left_over.remove_containers(client)]
    except HostError:
        if left_over.folders():
            raise
        return []
    return removed + left_over.remove_folders()
