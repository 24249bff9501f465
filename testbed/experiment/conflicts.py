"""Conflicts between the sections of an experiment file, each of which is valid by itself.

A conflict is a path from the top of the file and a sentence that says what is wrong and what to do.
"""

from itertools import chain
from typing import Any

from testbed.algorithms import algorithm_named, has
from testbed.algorithms.interface import AsynchronousOptions
from testbed.errors import SpecError
from testbed.experiment import fault_conflicts
from testbed.experiment.contents import Contents
from testbed.experiment.labels import RESERVED, check_name
from testbed.experiment.model_conflicts import of_model
from testbed.experiment.network_conflicts import of_links, of_rate_traces, of_shared_links
from testbed.experiment.plugin_code import plugin_modules
from testbed.experiment.power_figures import of_power
from testbed.experiment.sections.faults import AfterPushes
from testbed.experiment.sections.section import Conflict
from testbed.experiment.sections.timing import DrawnSpec
from testbed.experiment.server_conflicts import of_servers
from testbed.experiment.traffic_conflicts import of_flows
from testbed.network.links import Shape


def conflicts(contents: Contents) -> list[Conflict]:
    """Return every conflict of the file."""
    devices = contents.devices.conflicts()
    return [
        *_labels(contents),
        *_data(contents),
        *_clock(contents),
        *_costs(contents),
        # Algorithms check themselves against the devices, so these must be valid first.
        *(() if devices else _algorithms(contents)),
        *(() if devices else _send_queues(contents)),
        *_image(contents),
        *_evaluation(contents),
        *_simulation(contents),
        *fault_conflicts.of_checkpoints(contents),
        *fault_conflicts.of_faults(contents),
        *devices,
        *_hardware(contents),
        *of_power(contents),
        *of_links(contents),
        *of_shared_links(contents),
        *of_rate_traces(contents),
        *of_flows(contents),
        *of_servers(contents),
        *_aggregators(contents),
        *of_model(contents),
        *contents.partition.conflicts(contents.devices, contents.dataset),
    ]


def _labels(contents: Contents) -> list[Conflict]:
    found: list[Conflict] = []
    first: dict[str, int] = {}
    for i, options in enumerate(contents.algorithms):
        path, label = ("algorithms", i, "label"), options.label
        if label is None:
            continue
        try:
            check_name(label)
        except ValueError as error:
            found.append((path, str(error)))
            continue
        if label in RESERVED:
            found.append((path, f"'{label}' is taken by the run directory: use another"))
        elif label in first:
            found.append((path, f"'{label}' is already the label of algorithms.{first[label]}"))
        else:
            first[label] = i
    return found


def _data(contents: Contents) -> list[Conflict]:
    images, workers = contents.dataset.train_images, contents.devices.workers
    if (
        images is not None
        and images < workers
        and contents.partition.kind not in ("same", "stream")
    ):
        text = f"{images} images cannot be distributed among {workers} workers: each needs one"
        return [(("dataset", "train_images"), text)]
    return []


def _clock(contents: Contents) -> list[Conflict]:
    if contents.clock == "virtual":
        return _standstill(contents)
    if contents.engine == "emulation":
        return []
    text = "a simulation has only the virtual clock: take this out, or make it virtual"
    return [(("clock",), text)]


def _costs(contents: Contents) -> list[Conflict]:
    if contents.costs is None:
        return []
    if contents.clock == "wall":
        text = "messages cost real time under the wall clock: take it out, or use `clock: virtual`"
        return [(("costs",), text)]
    if contents.peers:
        text = f"peers ({contents.peers[0]}) have no server: take it out"
        return [(("costs",), text)]
    return []


def _standstill(contents: Contents) -> list[Conflict]:
    """Return a conflict for each class whose devices take no time, so that no virtual time passes."""
    found: list[Conflict] = []
    for i, one in enumerate(contents.devices.classes or (None,)):
        links = contents.link_of(one).first_shapes()
        if any(part.takes_time for part in contents.times_of(one)) or any(map(_takes_time, links)):
            continue
        text = (
            f"nothing takes any time{' there' if one else ''}, and the virtual clock would not "
            "advance: give computing a duration, for example `compute: {distribution: exponential, "
            "mean: 100ms}`"
        )
        found.append((("devices", "classes", i) if one else ("clock",), text))
    return found


def _takes_time(shape: Shape) -> bool:
    return shape.rate is not None or shape.delay > 0


def _algorithms(contents: Contents) -> list[Conflict]:
    found: list[Conflict] = []
    for i, options in enumerate(contents.algorithms):
        if options.pulls is not None and not has(options.name, "server"):
            text = "there is no server to pull from: take it out"
            found.append((("algorithms", i, "pulls"), text))
        try:
            algorithm_named(options.name).check(options, contents.conditions(options))
        except SpecError as error:
            found.append((("algorithms", i), str(error)))
    return found


def _send_queues(contents: Contents) -> list[Conflict]:
    """Return the conflicts of workers that compute while their last push is on its way."""
    found: list[Conflict] = []
    for i, options in enumerate(contents.algorithms):
        if isinstance(options, AsynchronousOptions) and options.overlaps:
            path, why = ("algorithms", i, "send_queue"), _cannot_overlap(contents, options)
            found += [(path, f"{why}: take one of them out")] if why else []
    return found


def _cannot_overlap(contents: Contents, options: AsynchronousOptions) -> str | None:
    """Return why workers have to wait for the answer to each push, if they have to."""
    algorithm = algorithm_named(options.name)
    legs = algorithm.legs(options, contents.conditions(options))
    if len(legs) > 1:
        return (
            f"workers of {options.name} push and ask at different times, and with a send queue they "
            "ask with each push"
        )
    if contents.partition.kind == "stream":
        return "a stream deals a mini-batch with each answer, for which such a worker does not wait"
    faults = (*contents.faults, *chain(*(one.faults for one in contents.devices.classes)))
    if contents.clock == "wall" and any(isinstance(one.when, AfterPushes) for one in faults):
        return (
            "by the wall clock a fault after a push strikes once that has been answered, for which "
            "such a worker does not wait"
        )
    return None


def _image(contents: Contents) -> list[Conflict]:
    """Return a conflict for each installed module of plug-ins, if containers start their own roles."""
    devices = contents.devices
    if devices.runtime != "docker" or devices.launched != "image":
        return []
    text = "list its file under `plugins`, or use `launch: fork`"
    return [
        (path, f"the image does not have the module {module}: {text}")
        for module, (path, _) in plugin_modules(contents).items()
    ]


def _hardware(contents: Contents) -> list[Conflict]:
    """Return a conflict for hardware whose computing takes no longer than that of any other."""
    compute, devices = contents.compute, contents.devices
    if isinstance(compute, DrawnSpec) and compute.takes_time:
        return []
    named: list[tuple[tuple[Any, ...], bool]] = [(("devices", "hardware"), bool(devices.hardware))]
    named += [
        (("devices", "classes", i, "hardware"), bool(one.hardware) and one.compute is None)
        for i, one in enumerate(devices.classes)
    ]
    text = (
        "it multiplies the mean of `compute` at the top of the file, which has none: give it the time "
        "of a gradient on a server's core, for example `compute: {distribution: gamma, variation: 0.1, "
        "mean: 20ms}`"
    )
    return [(path, text) for path, is_named in named if is_named]


def _evaluation(contents: Contents) -> list[Conflict]:
    if contents.evaluation.peer < contents.devices.workers:
        return []
    text = f"there are {contents.devices.workers} peers, numbered from 0: use a smaller number"
    return [(("evaluation", "peer"), text)]


def _simulation(contents: Contents) -> list[Conflict]:
    if not (contents.simulation.batched or contents.simulation.device != "cpu"):
        return []
    peers = contents.peers
    if not peers:
        if (contents.simulation.processors or 1) == 1:
            return []
        text = "gradients that are computed together are so in one process: take it out"
        return [(("simulation", "processors"), text)]
    key = "batched" if contents.simulation.batched else "device"
    text = f"the gradients of peers ({peers[0]}) are computed one after the other: take it out"
    return [(("simulation", key), text)]


def _aggregators(contents: Contents) -> list[Conflict]:
    """Return the conflicts of algorithms that have an aggregator in each cluster."""
    names = [(i, one.name) for i, one in enumerate(contents.algorithms)]
    aggregated = [(i, name) for i, name in names if has(name, "aggregator")]
    found: list[Conflict] = []
    if not contents.network.clusters:
        text = "has an aggregator in each cluster, and there are no clusters: add network.clusters"
        found += [(("algorithms", i), f"{name} {text}") for i, name in aggregated]
    return found
