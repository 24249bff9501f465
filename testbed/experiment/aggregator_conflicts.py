"""Conflicts of an algorithm with aggregators with the rest of the file."""

from testbed.algorithms import has
from testbed.experiment.contents import Contents
from testbed.experiment.sections.section import Conflict


def of_aggregators(contents: Contents) -> list[Conflict]:
    """Return the conflicts of algorithms that have an aggregator in each cluster."""
    found: list[Conflict] = []
    for i, options in enumerate(contents.algorithms):
        if not has(options.name, "aggregator"):
            continue
        path = ("algorithms", i)
        if not contents.network.clusters:
            text = (
                f"{options.name} has an aggregator in each cluster, and there are no clusters: add "
                "network.clusters"
            )
            found.append((path, text))
    return found + _beyond(contents) if _aggregated(contents) else []


def _aggregated(contents: Contents) -> set[str]:
    """Return the names of the algorithms that have aggregators."""
    return {options.name for options in contents.algorithms if has(options.name, "aggregator")}


def _beyond(contents: Contents) -> list[Conflict]:
    """Return a conflict for each feature that does not work with aggregators yet."""
    devices = contents.devices
    name = min(_aggregated(contents))
    found: list[Conflict] = []
    if devices.servers > 1:
        text = f"{name} does not work with it yet: take one of them out"
        found.append((("devices", "servers"), text))
    return found
