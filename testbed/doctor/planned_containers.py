"""Check that this host's Docker engine has the images and the means of planned runs.

Apart from ``containers``, because the plan of a run imports torch, which takes a second.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import docker
from docker.errors import ImageNotFound

from testbed.containers import engine, image
from testbed.errors import HostError
from testbed.experiment.sections.devices import DevicesSpec
from testbed.planning.node_plan import image_name
from testbed.planning.plans import AnyPlan
from testbed.planning.program_plan import ProgramPlan


def check(plans: Sequence[AnyPlan]) -> None:
    """Check that a Docker engine has the images and can make the runs' containers.

    Raises:
        HostError: it has not, or cannot, or there is no engine.
    """
    first, section = plans[0], plans[0].spec.devices
    with contextlib.closing(engine.connect()) as client, engine.answering():
        engine.check(client, max(_containers(plan) for plan in plans))
        if isinstance(first, ProgramPlan):
            _check_images(client, first)
        else:
            # A forked role runs this host's code in any image; a user's own only has to exist.
            of_this_code = section.image is None or section.launched == "image"
            image.find_image(client, image_name(first), of_this_code=of_this_code)
        _check_limits(section, client.info())


def _containers(plan: AnyPlan) -> int:
    return plan.containers if isinstance(plan, ProgramPlan) else len(plan.network.devices)


def _check_images(client: docker.DockerClient, plan: ProgramPlan) -> None:
    """Check that the engine has the images of programs, and that its host can execute them.

    Raises:
        HostError: it has not, or cannot.
    """
    architecture = str(client.version().get("Arch", ""))
    try:
        image.find_image(client, plan.image, of_this_code=False)
    except HostError as error:
        raise HostError(f"{error}, or name one that has a shell by devices.image") from error
    for name, section in plan.spec.programs.items():
        where = f"programs.{name}.image"
        try:
            found = client.images.get(plan.images[name])
        except ImageNotFound:
            raise HostError(
                f"{where}: the Docker engine has no image {section.image}: build it (docker build -t "
                f"{section.image} ...) or pull it (docker pull {section.image})"
            ) from None
        own = str(found.attrs.get("Architecture") or architecture)
        if architecture and own != architecture:
            raise HostError(
                f"{where}: the image {plan.images[name]} is for {own} processors, and this host's are "
                f"{architecture}: build or pull it for these (--platform linux/{architecture})"
            )
        config = found.attrs.get("Config") or {}
        if section.run is None and not (config.get("Entrypoint") or config.get("Cmd")):
            raise HostError(
                f"{where}: the image {section.image} has neither entry point nor command: give "
                f"programs.{name} a `run`"
            )


def _check_limits(section: DevicesSpec, host: dict[str, Any]) -> None:
    """Check limits of processors and memory against the engine's report on its host."""
    parts = (section, *section.classes)
    cpus, memory = (max(getattr(part, key) or 0 for part in parts) for key in ("cpus", "memory"))
    if cpus and not host.get("CpuCfsQuota"):
        raise HostError(
            "devices.cpus: this kernel cannot limit processors (it was built without "
            "CONFIG_CFS_BANDWIDTH): remove the key"
        )
    if cpus > host["NCPU"]:
        raise HostError(
            f"devices.cpus: {cpus:g} is more than the {host['NCPU']} processors of this host: use "
            "fewer, or remove the key to allow all of them"
        )
    if memory > host["MemTotal"]:
        raise HostError(
            f"devices.memory: {memory / 2**30:.1f} GiB is more than the "
            f"{host['MemTotal'] / 2**30:.1f} GiB of this host: use less, or remove the key"
        )
