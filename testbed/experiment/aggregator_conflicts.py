"""Conflicts of an algorithm with aggregators with the rest of the file."""

from testbed.algorithms import is_aggregated
from testbed.experiment.contents import Contents
from testbed.experiment.sections.section import Conflict


def of_aggregators(contents: Contents) -> list[Conflict]:
    """Return the conflicts of algorithms that have an aggregator in each cluster."""
    found: list[Conflict] = []
    for i, options in enumerate(contents.algorithms):
        if not is_aggregated(options.name):
            continue
        path = ("algorithms", i)
        if not contents.network.clusters:
            text = (
                f"{options.name} has an aggregator in each cluster, and there are no clusters: add "
                "network.clusters"
            )
            found.append((path, text))
    return found + _beyond(contents) if any(map(is_aggregated, _names(contents))) else []


def _names(contents: Contents) -> list[str]:
    return [options.name for options in contents.algorithms]


def _beyond(contents: Contents) -> list[Conflict]:
    """Return a conflict for each feature that does not work with aggregators yet."""
    devices, simulation = contents.devices, contents.simulation
    (name,) = {one for one in _names(contents) if is_aggregated(one)}
    presence = ("arrives", "leaves", "presence")
    asked: dict[tuple[str | int, ...], bool] = {
        ("devices", "servers"): devices.servers > 1,
        ("devices", "suspect_after"): devices.suspect_after is not None,
        ("checkpoints", "every"): contents.checkpoints.every is not None,
        ("faults",): bool(contents.faults),
        ("simulation", "batched"): simulation.batched,
        ("simulation", "device"): simulation.device != "cpu",
        **{("devices", key): getattr(devices, key, None) is not None for key in presence},
        **{
            ("devices", "classes", i, key): getattr(one, key, None) is not None
            for i, one in enumerate(devices.classes)
            for key in presence
        },
    }
    text = f"{name} does not work with it yet: take one of them out"
    return [(path, text) for path, is_asked in asked.items() if is_asked]
