"""The experiment file's section on devices: their number, runtime, limits and classes."""

from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    model_validator,
)

from testbed.durations import shares
from testbed.experiment.sections.device_classes import (
    DeviceClassSpec,
    class_conflicts,
    shares_of,
)
from testbed.experiment.sections.power import PowerSpec
from testbed.experiment.sections.presence import KEYS, PresenceSpec, presence_conflicts
from testbed.experiment.sections.profile_keys import HardwareName, with_memory
from testbed.experiment.sections.section import Conflict, SparseSection, as_tuple
from testbed.experiment.sections.timing import file_beside
from testbed.units import Duration, Size
from testbed.updates import Allocation

MOST_WORKERS = 100_000
"""The most workers: more than any dataset here has images, and few enough for lists of them."""
MOST_STARTED = 24
"""The most workers for which ``launch`` defaults to ``image``."""

SUSPECT_AFTER = 30.0
"""Seconds of silence after which a synchronous algorithm's worker is suspected, by default."""

LEAST_STARTED = 200 * 2**20
"""Bytes of memory that are not enough for a container that loads torch itself (measured: 220 MB)."""


class DevicesSpec(SparseSection):
    """The emulated machines other than the server and the evaluator."""

    workers: int = Field(
        ge=1,
        le=MOST_WORKERS,
        description="Workers; each has 1/workers of the training images, at random by the seed.",
        examples=[20],
    )
    servers: int = Field(
        default=1,
        ge=1,
        description="Parameter servers; each holds a part of the parameters, and every worker (or, "
        "if there are aggregators, each of these) pulls all parts and pushes to all servers; default: "
        "1.",
        examples=[4],
    )
    allocation: Allocation = Field(
        default="ranges",
        description="How several servers share the parameters: ranges (a contiguous range each, of "
        "equal sizes; default), or whole tensors or layers, which go to the servers in turn, as "
        "TensorFlow's variables do (tensor i to server i mod servers).",
    )
    placement: Literal["apart", "co-located"] = Field(
        default="apart",
        description="Where servers are: apart (each on a machine and a link of its own; default) or "
        "co-located (server i on the machine of worker i, whose link both share); with several "
        "servers, at most as many as workers.",
    )
    runtime: Literal["namespaces", "docker"] = Field(
        default="namespaces",
        description="What a device is: namespaces (own network, process, mount and IPC namespaces; "
        "needs no daemon; default) or docker (a container of this host's Docker engine; needs root "
        "and the image that `make images` builds).",
    )
    launch: Literal["image", "fork"] | None = Field(
        default=None,
        description="docker: how a role is started in its container: image (by the container's own "
        "Python, which loads torch for itself) or fork (from a process that all share, so that "
        f"hundreds fit); default: image up to {MOST_STARTED} workers, fork beyond.",
    )
    image: str | None = Field(
        default=None,
        min_length=1,
        description="docker: the image; default: the one that `make images` builds from this code.",
    )
    cpus: float | None = Field(
        default=None,
        ge=0.01,
        description="docker: processors that a worker may use, for example 0.5; default (null): all. "
        "Limited workers do not take turns at computing, as others do.",
    )
    memory: Size | None = Field(
        default=None,
        ge=6 * 2**20,
        description="docker: memory that a worker may use; default (null): all. With `launch: fork` "
        "memory that workers share (torch, the data) is not counted.",
    )
    hardware: HardwareName | None = Field(
        default=None,
        description="A named device (docs/links.md), which is slower than a server's core: compute at "
        "the top of the file is then the time on such a core. docker: gives memory, too. Default: "
        "none.",
        examples=["raspberry-pi-4"],
    )
    power: PowerSpec | None = Field(
        default=None,
        description="What a device draws, for its energy (docs/links.md); each key replaces the figure "
        "of the hardware, or of network.profile. Default: these.",
        examples=[{"idle": "2.7W", "busy": "3.6W", "sent": "3.5uJ"}],
    )
    classes: Annotated[tuple[DeviceClassSpec, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        description="Classes of devices that differ in times, links or limits, assigned by the same "
        "shuffle as the classes of compute and waiting; default: none.",
        examples=[
            [
                {"name": "fast", "share": "50%"},
                {"name": "slow", "share": "50%", "uplink": "1mbit"},
            ]
        ],
    )

    arrives: PresenceSpec | None = Field(
        default=None,
        description="When a worker arrives, after training has begun: a time, or a law that "
        "each draws from; default (null): it is there from the beginning.",
        examples=["30s"],
    )
    leaves: PresenceSpec | None = Field(
        default=None,
        description="When a worker leaves, after it has arrived; default (null): it stays.",
        examples=[{"distribution": "exponential", "mean": "5min"}],
    )
    returns: PresenceSpec | None = Field(
        default=None,
        description="When a worker that has left arrives again, after that; default (null): never. It "
        "leaves again as it did before.",
        examples=["1min"],
    )
    presence: Annotated[str, AfterValidator(file_beside)] | None = Field(
        default=None,
        min_length=1,
        description="A CSV file with the columns device, time (in seconds) and event (arrives or "
        "leaves), instead of arrives, leaves and returns; relative to the experiment file's folder.",
        examples=["presence.csv"],
    )

    suspect_after: Duration | None = Field(
        default=None,
        gt=0,
        description="Seconds of the run's clock after which a worker that was sent parameters and has "
        "sent nothing since is suspected, and left out until it sends something. null: never. "
        "Among peers: one that another waits for at its staleness bound, and that is waited for no "
        f"longer. Default: {SUSPECT_AFTER:g}s among peers and with an algorithm whose updates wait for "
        "workers; never with the others.",
        examples=["30s"],
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        return with_memory(data)

    def _written(self) -> Collection[str]:
        # The defaults of launch and image depend on the host; that of suspect_after on the algorithm.
        return {"runtime", *({"suspect_after"} & self.model_fields_set)}

    @property
    def co_located(self) -> int:
        """The number of workers that share their machine with a server: the first ones."""
        return self.servers if self.placement == "co-located" else 0

    @property
    def launched(self) -> Literal["image", "fork"]:
        """The value of ``launch``, or its default for this number of workers."""
        if self.launch is not None:
            return self.launch
        return "image" if self.workers <= MOST_STARTED else "fork"

    @property
    def limits_processors(self) -> bool:
        """True if any device may use only a part of the processors."""
        return self.cpus is not None or any(one.cpus is not None for one in self.classes)

    @property
    def come_and_go(self) -> bool:
        """True if workers arrive after training has begun, or leave."""
        sections = (self, *self.classes)
        times = (getattr(one, key) for one in sections for key in KEYS)
        return self.presence is not None or any(time is not None for time in times)

    @property
    def class_sizes(self) -> list[int]:
        """The number of devices in each class."""
        return shares.apportion(shares_of(self.classes, self.workers), self.workers)

    def class_of(self, seed: int) -> list[int]:
        """Return the class of every worker, by its number; an empty list without classes."""
        if not self.classes:
            return []
        members = shares.classes(shares_of(self.classes, self.workers), seed, self.workers)
        return [int(one) for one in members]

    def conflicts(self, *, loads_torch: bool = True) -> list[Conflict]:
        """Return the conflicts within the section.

        Args:
            loads_torch: False if what runs in the devices are not the testbed's own roles.
        """
        containers = self.runtime == "docker"
        found = class_conflicts(self.classes, self.workers, containers=containers)
        found += presence_conflicts(self, self.classes, has_file=self.presence is not None)
        if containers:
            return found + (self._memory_conflicts() if loads_torch else [])
        keys = ("launch", "image", "cpus", "memory")
        return found + [
            (("devices", key), "only containers have it: take it out, or use `runtime: docker`")
            for key in keys
            if getattr(self, key)
        ]

    def _memory_conflicts(self) -> list[Conflict]:
        if self.launched == "fork":
            return []
        given: list[tuple[tuple[Any, ...], int | None]] = [(("devices", "memory"), self.memory)]
        given += [(("devices", "classes", i), one.memory) for i, one in enumerate(self.classes)]
        least = f"{LEAST_STARTED // 2**20}MiB"
        text = (
            f"a role started by the image loads torch for itself, and {least} are not enough: give "
            "it more (300MiB), or use `launch: fork`"
        )
        return [(path, text) for path, memory in given if memory and memory <= LEAST_STARTED]
