"""Read an experiment file for a run without an orchestrator, and refuse unsupported features."""

from dataclasses import replace
from pathlib import Path

from testbed.errors import SpecError
from testbed.experiment.load import load
from testbed.experiment.spec import Spec
from testbed.planning.plan import Plan, plan


def read(path: Path, secret: str) -> Plan:
    """Read an experiment file that has one run, by the wall clock, with a server.

    Args:
        secret: the run's own secret, hexadecimal.

    Raises:
        SpecError: the file cannot be used, or asks for a feature that needs an orchestrator.
    """
    spec = load(path)
    if problems := _beyond(spec):
        raise SpecError("\n".join(f"{path}: {text}" for text in problems))
    (one,) = plan(spec)
    if not one.served:
        raise SpecError(
            f"{path}: algorithms: {one.label} has no server, and roles that are started one by one "
            "need one: use an algorithm with a server, or `testbed run`"
        )
    # Devices resolve the server's name themselves; processors are limited where they are started.
    settings = replace(
        one.settings,
        network=replace(one.settings.network, secret=secret, server_address=""),
        timing=replace(one.settings.timing, own_processors=True),
    )
    return replace(one, settings=settings)


def _beyond(spec: Spec) -> list[str]:
    """Return a message for each requested feature that is not supported here."""
    problems = []
    if spec.engine == "simulation":
        problems.append("engine: nothing is simulated here: use `testbed simulate`")
    elif spec.clock == "virtual":
        problems.append("clock: only the wall clock is known here: use `testbed run`")
    if len(spec.algorithms) > 1:
        problems.append(
            f"algorithms: {len(spec.algorithms)} are named, and one is carried out at a time: leave one"
        )
    network = spec.network
    shaped = ("uplink", "downlink", "delay", "loss")
    if asked := [key for key in shaped if getattr(network, key)]:
        problems.append(
            f"network.{asked[0]}: links are not shaped here: take it out, or use `testbed run`"
        )
    devices = spec.devices
    limits = ("cpus", "memory")
    if any(getattr(one, key) for one in (devices, *devices.classes) for key in limits):
        problems.append(
            "devices: whoever starts the roles limits them (compose: cpus, mem_limit): take cpus "
            "and memory out, or use `testbed run`"
        )
    if any(getattr(one, key) for one in devices.classes for key in shaped):
        problems.append(
            "devices.classes: links are not shaped here: take rates, delay and loss out, or use "
            "`testbed run`"
        )
    return problems
