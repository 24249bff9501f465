"""Read an experiment file for a run without an orchestrator, and refuse unsupported features."""

from dataclasses import replace
from pathlib import Path

from testbed.algorithms import has
from testbed.errors import SpecError
from testbed.experiment.device_links import DeviceLink
from testbed.experiment.load import load
from testbed.experiment.spec import Spec
from testbed.planning.plan import Plan, plan

_WITHOUT = "a run without an orchestrator"


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
    (run_plan,) = plan(spec)
    if not run_plan.served:
        raise SpecError(
            f"{path}: algorithms: {run_plan.label} has no server, and {_WITHOUT} needs one: use an "
            "algorithm with a server, or `testbed run`"
        )
    network = run_plan.settings.network
    # Devices resolve the server's name themselves, and are sent the further servers' addresses when
    # training is to begin; processors are limited where they are started.
    settings = replace(
        run_plan.settings,
        network=replace(network, secret=secret, server_addresses=[""] * len(run_plan.servers)),
        timing=replace(run_plan.settings.timing, own_processors=True),
    )
    return replace(run_plan, settings=settings)


def _beyond(spec: Spec) -> list[str]:
    """Return a message for each requested feature that is not supported here."""
    problems = []
    if spec.engine == "simulation":
        problems.append(f"engine: {_WITHOUT} cannot simulate: use `testbed simulate`")
    elif spec.clock == "virtual":
        problems.append(f"clock: {_WITHOUT} has only the wall clock: use `testbed run`")
    if len(spec.algorithms) > 1:
        problems.append(
            f"algorithms: {_WITHOUT} has one algorithm, and the file names {len(spec.algorithms)}: "
            "keep one, or use `testbed run`"
        )
    network = spec.network
    asked = _shaped(network.profile, spec.link_of(None))
    asked += [key for key in ("server", "clusters", "graph") if getattr(network, key)]
    if asked:
        problems.append(
            f"network.{asked[0]}: {_WITHOUT} does not shape links: remove the key, or use `testbed run`"
        )
    devices = spec.devices
    presence = ("arrives", "leaves", "presence")
    if any(getattr(one, key, None) for one in (devices, *devices.classes) for key in presence):
        problems.append(
            f"devices: {_WITHOUT} does not start devices later or end them: remove arrives, leaves and "
            "presence, or use `testbed run`"
        )
    if devices.co_located:
        problems.append(
            f"devices.placement: {_WITHOUT} has servers on hosts of their own: remove the key, or use "
            "`testbed run`"
        )
    if any(has(algorithm.name, "aggregator") for algorithm in spec.algorithms):
        problems.append(
            f"algorithms: {_WITHOUT} has no aggregators: use another algorithm, or `testbed run`"
        )
    if spec.faults:
        problems.append(
            f"faults: {_WITHOUT} makes no faults happen: remove the section, or use `testbed run`"
        )
    if spec.traffic_between:
        problems.append(
            f"traffic_between: {_WITHOUT} has no background traffic: remove the section, or use "
            "`testbed run`"
        )
    if spec.checkpoints.every is not None:
        problems.append(
            f"checkpoints: {_WITHOUT} writes none: remove the section, or use `testbed run`"
        )
    limits = ("cpus", "memory")
    if any(getattr(section, key) for section in (devices, *devices.classes) for key in limits):
        problems.append(
            f"devices: {_WITHOUT} does not limit devices, compose does (cpus, mem_limit): remove cpus "
            "and memory, or use `testbed run`"
        )
    if any(_shaped(section.profile, spec.link_of(section)) for section in devices.classes):
        problems.append(
            f"devices.classes: {_WITHOUT} does not shape links: remove rates, traces, delay and loss, "
            "or use `testbed run`"
        )
    return problems


def _shaped(profile: str | None, link: DeviceLink) -> list[str]:
    """Return the keys that shape a device's link; ``profile`` alone if there is one."""
    if profile is not None:
        return ["profile"]
    up, down = link.up, link.down
    values = {
        "uplink": up.rate,
        "downlink": down.rate,
        "delay": up.delay or down.delay,
        "loss": up.loss or down.loss,
        "trace": link.up_trace or link.down_trace,
    }
    return [key for key, value in values.items() if value]
