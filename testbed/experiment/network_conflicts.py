"""Conflicts of the links with each other and with the rest of the file."""

from collections.abc import Iterator
from typing import Any, TypeAlias

from testbed.experiment.device_links import LinkKeys, link_shapes
from testbed.experiment.profiles import LINKS
from testbed.experiment.program_contents import AnyContents
from testbed.experiment.rate_trace_files import DIRECTIONS, Direction
from testbed.experiment.sections.device_classes import DeviceClassSpec
from testbed.experiment.sections.network import NetworkSpec
from testbed.experiment.sections.section import Conflict
from testbed.experiment.sections.shared_links import cluster_conflicts
from testbed.network.links import Shape
from testbed.units import parse_limit

_Path: TypeAlias = tuple[Any, ...]


def of_links(contents: AnyContents) -> list[Conflict]:
    """Return what is wrong with the links of devices, of the server and of clusters."""
    network, classes = contents.network, contents.devices.classes
    found: dict[Conflict, None] = {}  # several classes may have what network says
    for i, one in enumerate(classes):
        own = ("devices", "classes", i)
        for keys, text in _impossible(contents.link_of(one).first_shapes()):
            says = any(getattr(one, key) is not None for key in keys)
            found[(*(own if says else _NETWORK), keys[0]), text] = None
    shared: list[tuple[_Path, LinkKeys]] = [
        ((*_NETWORK, "clusters", i), one) for i, one in enumerate(network.clusters)
    ]
    if network.server is not None:
        shared.append(((*_NETWORK, "server"), network.server))
    links = [(path, link_shapes(section)) for path, section in shared]
    if not classes:
        links.insert(0, (_NETWORK, contents.link_of(None).first_shapes()))
    for path, shapes in links:
        found |= {((*path, keys[0]), text): None for keys, text in _impossible(shapes)}
    if contents.clock == "virtual":
        general: list[tuple[_Path, LinkKeys]] = [(_NETWORK, network)]
        general += [(("devices", "classes", i), one) for i, one in enumerate(classes)]
        for path, section in general + shared:
            found |= {((*path, key), text): None for key, text in _under_virtual_clock(section)}
    return list(found)


_NETWORK: _Path = ("network",)
_WAYS = ("up", "down")


def _impossible(shapes: tuple[Shape, Shape]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what is wrong with a link, and the keys it is about."""
    for way, shape in zip(_WAYS, shapes, strict=True):
        if shape.jitter > shape.delay:
            text = (
                f"the {way}link's jitter is more than its delay, and a packet cannot arrive before it "
                "is sent: give the delay at least as much, or less jitter"
            )
            yield ("jitter", "delay"), text
    idle = [way for way, one in zip(_WAYS, shapes, strict=True) if one.queue and one.rate is None]
    if len(idle) == 1:
        (other,) = set(_WAYS) - set(idle)
        text = (
            f"nothing waits where there is no rate: give the {idle[0]}link one, or name the other "
            f"direction alone, for example `queue: {{{other}: 64kB}}`"
        )
        yield ("queue", f"{idle[0]}link"), text
    elif idle:
        text = "nothing waits where there is no rate: give the link one, or take its queue out"
        yield ("queue", "uplink", "downlink"), text


def _under_virtual_clock(section: LinkKeys) -> Iterator[tuple[str, str]]:
    """Yield the keys of a section that mean nothing under the virtual clock."""
    shapes = link_shapes(section)
    if any(shape.loss for shape in shapes):
        way_out = "take it out"
        if section.profile is not None:
            way_out = f"write `loss: 0%` beside `profile: {section.profile}`, which gives it"
        yield "loss", f"nothing is lost under the virtual clock: {way_out}, or use `clock: wall`"
    if any(shape.queue is not None for shape in shapes):
        text = "queues are never full under the virtual clock: take it out, or use `clock: wall`"
        yield "queue", text


def of_shared_links(contents: AnyContents) -> list[Conflict]:
    """Return the conflicts of the server's own link and of the clusters."""
    network, peers = contents.network, contents.peers
    found: list[Conflict] = []
    if network.server is not None and peers:
        text = f"peers ({peers[0]}) have no server: take it out"
        found.append((("network", "server"), text))
    if network.clusters and network.graph:
        text = "devices are in clusters, or attached to a graph: take one of them out"
        found.append((("network", "graph"), text))
    classes = [one.name for one in contents.devices.classes]
    return found + cluster_conflicts(network.clusters, contents.devices.workers, classes)


def of_rate_traces(contents: AnyContents) -> list[Conflict]:
    """Return a conflict for each direction of a link that has a rate and a trace of rates.

    A trace may replace the rate that a profile gives.
    """
    classes = enumerate(contents.devices.classes)
    parts: list[tuple[_Path, NetworkSpec | DeviceClassSpec]] = [
        (_NETWORK, contents.network),
        *((("devices", "classes", i), one) for i, one in classes),
    ]
    return [
        ((*path, direction), "its trace has the rates of this direction: take one of them out")
        for path, section in parts
        if section.trace is not None
        for direction in DIRECTIONS
        if section.trace.trace(direction) and _has_rate(section, direction)
    ]


def _has_rate(section: LinkKeys, direction: Direction) -> bool:
    rate = getattr(section, direction)
    if section.profile is None or rate is None:
        return rate is not None
    return bool(rate != parse_limit(str(LINKS[section.profile].keys()[direction])))
