"""The nodes and links that an agent is asked to make, and what it is to watch in them, as JSON values.

``planning.node_plan`` and ``planning.program_nodes`` make them from a plan, and
``orchestrator.hosts.spread`` cuts them into the parts of several hosts. A key that does not apply is
left out.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired, TypeAlias, TypedDict

DataclassFields: TypeAlias = Mapping[str, object]
"""The fields of a dataclass, which the agent makes from them (``json_dataclasses.of_plain``)."""


class PlannedNodes(TypedDict):
    """The kind of the nodes, and what their roles or programs need.

    Attributes:
        addresses: of the devices, by all their names.
        read: paths of the host's files that roles and programs read.
        written: the path of the folder with a folder for each device in which programs run.
        folder: on another host, the folder that is seen at ``written``; None without programs.
        homes, files: on another host, the devices with a folder, and the files that each gets.
        launch: how roles get into containers; ``beside``: each program has a container of its own.
        image, images: the image of devices' containers, and those of programs, by their names.
        mounts: the path in containers of each path of the host that is mounted.
        environment: variables of roles in containers.
    """

    runtime: Literal["namespaces", "docker"]
    addresses: Mapping[str, str]
    read: NotRequired[Sequence[str]]
    written: NotRequired[str]
    folder: NotRequired[str | None]
    homes: NotRequired[Sequence[str]]
    files: NotRequired[Sequence[str]]
    launch: NotRequired[Literal["image", "fork", "beside"]]
    image: NotRequired[str]
    images: NotRequired[Mapping[str, str]]
    mounts: NotRequired[Mapping[str, str]]
    environment: NotRequired[Mapping[str, str]]


class PlannedDevice(TypedDict):
    """The fields of a ``nodes.node_interface.Device``; only workers and peers have limits."""

    name: str
    cpus: NotRequired[float | None]
    memory: NotRequired[int | None]


class SharedDirection(TypedDict):
    """A direction of a link, by its index, with the senders and receivers that share its rate."""

    link: int
    up: bool
    pairs: Sequence[tuple[str, str]]


class PlannedTraffic(TypedDict):
    """The capture and the samples of the counters.

    Attributes:
        directory: of the capture's files.
        file_size, total_size: the most bytes of one of them, and of all.
        period: seconds between two samples of every link's counters.
        metrics: True if the capture is to report its progress.
    """

    capture: bool
    file_size: int
    total_size: int
    period: float
    directory: str
    metrics: NotRequired[bool]


class PlannedBackground(TypedDict):
    """The seed of background traffic, and the fields of each ``BackgroundFlow`` of it."""

    seed: int
    flows: Sequence[DataclassFields]


class PlannedUnderlay(TypedDict):
    """The other hosts, as in ``network.underlay.Underlay``; ``first`` is ``first_network`` there."""

    address: str
    elsewhere: Mapping[str, str]
    first: int
    port: int


class PlannedCounts(TypedDict):
    """The devices of a network, and what of them is counted, captured and cut off.

    Attributes:
        captured: the devices whose links are captured.
        cut_from: the devices that a partition cuts others off from.
        cut_between: those that it cuts an aggregator off from, by the aggregator.
        counted, uncounted: the devices whose ingress is counted, and those whose traffic is left out.
        local, above: as in ``network.building.Queues``.
        sockets: the devices whose TCP connections are counted.
        sysctls: settings of the nodes' networks that are not the kernel's own.
        timed: True if the host's own processors are watched.
        measured: the devices whose processor time is read.
    """

    devices: Sequence[PlannedDevice]
    captured: Sequence[str]
    cut_from: Sequence[str]
    cut_between: NotRequired[Mapping[str, Sequence[str]]]
    counted: Sequence[str]
    uncounted: Sequence[str]
    local: NotRequired[Mapping[str, str]]
    above: NotRequired[Mapping[str, Sequence[str]]]
    sockets: NotRequired[Sequence[str]]
    sysctls: Mapping[str, str]
    shared: Sequence[SharedDirection]
    timed: NotRequired[bool]
    measured: NotRequired[Sequence[str]]


class PlannedLinks(TypedDict):
    """The links of a network, and the traffic on them.

    Attributes:
        routers, delays: as ``others`` and ``delays`` of ``network.topology.Network``.
        links, probe: the fields of each ``network.links.Link``, and of those that are probed.
    """

    traffic: PlannedTraffic
    routers: Sequence[str]
    delays: NotRequired[Sequence[Sequence[float]]]
    links: Sequence[DataclassFields]
    probe: NotRequired[Sequence[DataclassFields]]
    background: NotRequired[PlannedBackground]
    underlay: NotRequired[PlannedUnderlay]


class PlannedNetwork(PlannedCounts, PlannedLinks):
    """The network to make, with what is counted in it."""
