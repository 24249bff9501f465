"""Conflicts of several parameter servers with the rest of the file."""

from testbed.algorithms import algorithm_named
from testbed.experiment.contents import Contents
from testbed.experiment.model_conflicts import chosen, described
from testbed.experiment.sections.section import Conflict
from testbed.learning.data.catalogue import inputs_of
from testbed.number_text import as_number


def of_servers(contents: Contents) -> list[Conflict]:
    """Return the conflicts of ``devices.servers``, if there are several."""
    servers, peers = contents.devices.servers, contents.peers
    if servers == 1:
        return _of_placement(contents)
    path = ("devices", "servers")
    found: list[Conflict] = []
    if peers:
        found.append((path, f"peers ({peers[0]}) have no server: take it out"))
    found += [
        (
            path,
            f"{one.name} decides for all parameters at once, so it needs one server: take it out",
        )
        for one in contents.algorithms
        if not peers and not algorithm_named(one.name).sliced
    ]
    total = described(contents).vector("none")
    if servers > total:
        text = (
            f"{contents.model.name} has {total:,} parameters, and each server needs one: use fewer"
        )
        found.append((path, text))
    elif contents.devices.allocation != "ranges":
        found += _of_allocation(contents)
    return found + _of_placement(contents)


def _of_allocation(contents: Contents) -> list[Conflict]:
    """Return the conflict of servers that would hold no tensor or no layer."""
    from testbed.learning.models import layout  # imports torch, which takes more than a second

    servers, allocation = contents.devices.servers, contents.devices.allocation
    assert allocation != "ranges"
    there = len(
        layout(chosen(contents.model), inputs_of(contents.dataset.choice)).units(allocation)
    )
    if servers <= there:
        return []
    text = (
        f"{contents.model.name} has {as_number(there, allocation[:-1])}, and each server needs one: "
        "use fewer, or `allocation: ranges`"
    )
    return [(("devices", "servers"), text)]


def _of_placement(contents: Contents) -> list[Conflict]:
    devices, network = contents.devices, contents.network
    if devices.placement == "apart":
        return []
    found: list[Conflict] = []
    path = ("devices", "placement")
    if devices.servers == 1:
        text = "one server has a machine of its own: give `servers` 2 or more, or take this out"
        found.append((path, text))
    if devices.servers > devices.workers:
        text = (
            f"each co-located server needs the machine of a worker, and there are {devices.workers}: "
            "use fewer servers, or take `placement` out"
        )
        found.append((("devices", "servers"), text))
    if network.server is not None:
        text = "co-located servers use the links of workers' machines: take it out"
        found.append((("network", "server"), text))
    if network.graph is not None and network.graph.server is not None:
        text = "co-located servers are where their workers are: take it out"
        found.append((("network", "graph", "server"), text))
    return found
