"""The experiment file's links that several devices share: the server's own, and those of clusters."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
)

from testbed.device_names import may_be_a_device
from testbed.durations.shares import apportion
from testbed.experiment.sections.directions import (
    DirectedDuration,
    DirectedPercentage,
    DirectedSize,
)
from testbed.experiment.sections.profile_keys import LinkName, ProfiledSection
from testbed.experiment.sections.section import (
    Conflict,
    as_tuple,
    check_name,
    wrong_sizes,
)
from testbed.network.links import CORE
from testbed.units import Limit, Share

_PATH = ("network", "clusters")


class SharedLinkSpec(ProfiledSection):
    """A link that the traffic of several devices passes; its rate is shared fairly."""

    profile: LinkName | None = Field(
        default=None,
        description="A named link (docs/links.md), which gives rates, delay, jitter and loss; other "
        "keys replace what it gives. Default: none.",
        examples=["fibre"],
    )
    uplink: Limit | None = Field(
        default=None,
        description="Rate towards the core, in bit/s, of all devices together; "
        "default (null, or unlimited): not limited.",
        examples=["1gbit"],
    )
    downlink: Limit | None = Field(
        default=None,
        description="Rate from the core, in bit/s, of all devices together; "
        "default (null, or unlimited): not limited.",
        examples=["1gbit"],
    )
    delay: DirectedDuration | None = Field(
        default=None,
        description="Delay added on the uplink, in seconds, or a delay for each direction; default: "
        "none. Needs the kernel's netem.",
    )
    jitter: DirectedDuration | None = Field(
        default=None,
        description="The most by which a packet's delay is longer or shorter, as network.jitter; "
        "default: none.",
    )
    loss: DirectedPercentage | None = Field(
        default=None,
        description="Share of the uplink's packets that is lost at random, or a share for each "
        "direction; default: none. Needs the kernel's netem.",
    )
    queue: DirectedSize | None = Field(
        default=None,
        description="Bytes that may wait for the rate, of each pair of devices that share it, as "
        "network.queue; default: 1,000 packets.",
    )


def _check_name(name: str) -> str:
    check_name(name, "a cluster")
    if name == CORE or may_be_a_device(name):
        raise ValueError(f"'{name}' is the name of a node that every run may have: use another")
    return name


class ClusterSpec(SharedLinkSpec):
    """Devices behind a router with one link to the core, or to the router of another cluster."""

    name: Annotated[str, AfterValidator(_check_name)] = Field(
        description="Name of the cluster and of its router: letters, digits, '-' and '_'.",
        examples=["campus"],
    )
    inside: str | None = Field(
        default=None,
        description="Name of the cluster that this one is in: its link leads to that one's router. "
        "Default: none; it leads to the core.",
        examples=["region"],
    )
    share: Share | None = Field(
        default=None,
        description="Share of the devices in this cluster; the shares of all clusters add up to 100%.",
        examples=["60%"],
    )
    number: int | None = Field(
        default=None,
        ge=1,
        description="Number of devices in this cluster, if no cluster has a share; the numbers add up "
        "to devices.workers.",
        examples=[5],
    )
    classes: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        description="Names of the classes of devices in this cluster, instead of a share or a number; "
        "every class is in one cluster.",
        examples=[["slow"]],
    )

    @property
    def ways(self) -> list[str]:
        """How its devices are chosen: ``share``, ``number`` or ``classes``; it should be one way."""
        return [
            key
            for key, value in (
                ("share", self.share),
                ("number", self.number),
                ("classes", self.classes or None),
            )
            if value is not None
        ]


def cluster_of(
    clusters: Sequence[ClusterSpec],
    devices: int,
    class_of: Sequence[int],
    classes: Mapping[str, int],
) -> list[int]:
    """Return the cluster of every device, by its number; an empty list without clusters.

    Shares and numbers take the devices in the order of their numbers. ``class_of`` has the class of
    each device, and ``classes`` the number of each class.
    """
    if any(one.classes for one in clusters):
        home = {
            classes[name]: number for number, one in enumerate(clusters) for name in one.classes
        }
        return [home[device_class] for device_class in class_of]
    counts = [one.number or 0 for one in clusters]
    if any(one.share is not None for one in clusters):
        counts = apportion([one.share or 0.0 for one in clusters], devices)
    return [number for number, count in enumerate(counts) for _ in range(count)]


def around(clusters: Sequence[ClusterSpec], home: int) -> int | None:
    """Return the cluster that a cluster is in; None: it is in none."""
    inside = clusters[home].inside
    return None if inside is None else [one.name for one in clusters].index(inside)


def inhabited(clusters: Sequence[ClusterSpec], cluster: Sequence[int]) -> list[int]:
    """Return the clusters with devices in the order of their first ones, and then those around them.

    ``cluster`` has that of every device. Few devices may leave a small share without any.
    """
    found = list(dict.fromkeys(cluster))
    for home in found:  # it grows meanwhile
        outer = around(clusters, home)
        if outer is not None and outer not in found:
            found.append(outer)
    return found


def cluster_conflicts(
    clusters: Sequence[ClusterSpec], devices: int, classes: Sequence[str]
) -> list[Conflict]:
    """Return the conflicts of the clusters with each other, and with the devices and their classes."""
    found: list[Conflict] = []
    first: dict[str, int] = {}
    for i, one in enumerate(clusters):
        if one.name in first:
            text = f"'{one.name}' is already the name of network.clusters.{first[one.name]}"
            found.append(((*_PATH, i, "name"), text))
        first.setdefault(one.name, i)
        if len(one.ways) > 1 or not (one.ways or any(one.name == of.inside for of in clusters)):
            text = "give it its devices, in one way: a share, a number, or classes"
            found.append(((*_PATH, i), text))
    found += _nesting_conflicts(clusters)
    ways = {way for one in clusters for way in one.ways}
    if found or not clusters:
        return found
    if len(ways) > 1:
        text = "their devices are given in several ways: use shares, numbers or classes for all"
        return [(_PATH, text)]
    own = [one for one in clusters if one.ways]
    wrong = wrong_sizes([one.share for one in own], [one.number for one in own], devices)
    return [(_PATH, wrong)] if wrong else _of_classes(clusters, classes)


def _nesting_conflicts(clusters: Sequence[ClusterSpec]) -> list[Conflict]:
    """Return a conflict for each cluster inside one that there is not, or inside itself."""
    by_name = {one.name: one for one in clusters}
    found: list[Conflict] = []
    for i, one in enumerate(clusters):
        path, outer = (*_PATH, i, "inside"), one.inside
        if outer is not None and outer not in by_name:
            found.append((path, f"there is no cluster '{outer}': {', '.join(by_name)}"))
            continue
        seen: set[str] = set()
        while outer is not None and outer in by_name and outer not in seen:
            seen.add(outer)
            outer = by_name[outer].inside
        if one.name in seen:
            found.append((path, f"'{one.name}' is inside itself: take this out"))
    return found


def _of_classes(clusters: Sequence[ClusterSpec], classes: Sequence[str]) -> list[Conflict]:
    """Return a conflict for each class that is in no cluster, in two, or that there is not."""
    if not any(one.classes for one in clusters):
        return []
    found: list[Conflict] = []
    home: dict[str, int] = {}
    for i, one in enumerate(clusters):
        for name in one.classes:
            path = (*_PATH, i, "classes")
            if name not in classes:
                known = ", ".join(classes) or "none"
                text = f"there is no class '{name}' in devices.classes: {known}"
                found.append((path, text))
            elif name in home:
                text = f"class '{name}' is in network.clusters.{home[name]} already: take it out"
                found.append((path, text))
            home.setdefault(name, i)
    found += [
        (_PATH, f"class '{name}' is in no cluster: add it to the classes of one")
        for name in classes
        if name not in home
    ]
    return found
