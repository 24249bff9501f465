"""The experiment file's sections on the links, and on capturing and counting their traffic."""

import re
from collections.abc import Collection, Mapping
from typing import Annotated, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
)

from testbed.experiment.alternatives import ShortForm
from testbed.experiment.sections.directions import (
    Delays,
    DirectedDuration,
    DirectedPercentage,
    DirectedSize,
    Percentages,
)
from testbed.experiment.sections.graph import GraphSpec
from testbed.experiment.sections.profile_keys import LinkName, ProfiledSection
from testbed.experiment.sections.rate_traces import RateTraceSpec
from testbed.experiment.sections.section import Section, as_tuple
from testbed.experiment.sections.shared_links import ClusterSpec, SharedLinkSpec
from testbed.units import Duration, Limit, Size


def _as_texts(value: object) -> object:
    """Write numbers, and lists of them, as the kernel does: ``[4096, 8192]`` is `4096 8192`."""
    if not isinstance(value, dict):
        return value
    found = {}
    for name, one in value.items():
        parts = one if isinstance(one, list) else [one]
        plain = all(type(part) in (int, str) for part in parts) and parts
        found[name] = " ".join(map(str, parts)) if plain else one
    return found


def _check_sysctl(name: str) -> str:
    if not re.fullmatch(r"(tcp|udp)_[a-z0-9_]+", name):
        raise ValueError(
            f"'{name}' is no setting of TCP or UDP: write its name below net.ipv4, such as "
            "tcp_slow_start_after_idle"
        )
    return name


SysctlName: TypeAlias = Annotated[str, AfterValidator(_check_sysctl)]


class NetworkSpec(ProfiledSection):
    """The link of every worker, and the links that several devices share."""

    profile: LinkName | None = Field(
        default=None,
        description="A named link (docs/links.md), which gives rates, delay, jitter and loss; other "
        "keys replace what it gives. Default: none.",
        examples=["4g"],
    )
    uplink: Limit | None = Field(
        default=None,
        description="Rate from a worker to the server, in bit/s; default (null, or unlimited): not "
        "shaped.",
    )
    downlink: Limit | None = Field(
        default=None,
        description="Rate from the server to a worker, in bit/s; default (null, or unlimited): not "
        "shaped.",
    )
    delay: DirectedDuration = Field(
        default=Delays(up=0.0, down=0.0),
        description="Delay added on the uplink, in seconds, or a delay for each direction; default 0. "
        "Needs the kernel's netem.",
        examples=["20ms", {"up": "20ms", "down": "10ms"}],
    )
    jitter: DirectedDuration | None = Field(
        default=None,
        description="The most by which a packet's delay is longer or shorter, at random (uniform), in "
        "seconds: on the uplink, or for each direction; at most the delay. Default: none.",
        examples=["2ms"],
    )
    loss: DirectedPercentage = Field(
        default=Percentages(up=0.0, down=0.0),
        description="Share of a worker's uplink packets that is lost at random, or a share for each "
        "direction; default 0. Needs the kernel's netem.",
    )
    queue: DirectedSize | None = Field(
        default=None,
        description="Bytes that may wait for a link's rate, beyond which packets are dropped: in each "
        "direction, or for each; wall clock. Default: 1,000 packets, the kernel's.",
        examples=["64kB"],
    )
    trace: Annotated[RateTraceSpec, ShortForm((), open_ended=True, key="file")] | None = Field(
        default=None,
        description="How the rates change over time, in place of uplink and downlink: a CSV file, or a "
        "mapping; default (null): they do not.",
        examples=["rates.csv"],
    )
    probe: bool = Field(
        default=True,
        description="Measure rate, delay and loss of a sample of the shaped links before training, and "
        "record them with the requested values (default; wall clock only); false: measure nothing.",
    )

    sysctls: (
        Annotated[
            dict[SysctlName, str],
            BeforeValidator(_as_texts),
            WithJsonSchema({"type": "object", "propertyNames": {"pattern": "^(tcp|udp)_"}}),
        ]
        | None
    ) = Field(
        default=None,
        description="Settings of TCP in every device, by their names below net.ipv4. Default (null): "
        "for algorithms tcp_rmem, tcp_wmem and tcp_slow_start_after_idle, as docs/links.md "
        "says, and for programs the kernel's own. {}: the kernel's own.",
        examples=[{"tcp_congestion_control": "reno"}],
    )

    server: SharedLinkSpec | None = Field(
        default=None,
        description="The server's own link to the core, which the traffic of all workers passes and "
        "the evaluator's does not load; default (null): not shaped.",
        examples=[{"uplink": "1gbit", "downlink": "1gbit"}],
    )
    clusters: Annotated[tuple[ClusterSpec, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        description="Groups of devices, each behind a router with one link to the core; default: none, "
        "every device is linked to the core.",
        examples=[
            [
                {"name": "campus", "share": "60%", "uplink": "100mbit", "downlink": "300mbit"},
                {"name": "village", "share": "40%", "uplink": "20mbit", "downlink": "50mbit"},
            ]
        ],
    )

    graph: GraphSpec | None = Field(
        default=None,
        description="Any graph of routers, to which devices are attached, instead of clusters; "
        "default: none.",
        examples=[{"topohub": "sndlib/germany50", "rate": "1gbit"}],
    )

    def tcp_settings(self, otherwise: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of TCP that are not the kernel's, by their full names.

        Args:
            otherwise: those where the file says nothing.
        """
        if self.sysctls is None:
            return dict(otherwise)
        return {f"net.ipv4.{name}": value for name, value in self.sysctls.items()}

    @property
    def shares_links(self) -> bool:
        """True if devices may share links."""
        return bool(self.server or self.clusters or self.graph)

    def _written(self) -> Collection[str]:
        return "uplink", "downlink", "delay", "loss"


class TrafficSpec(Section):
    """The capture at the server's link, and the samples of every link's counters."""

    capture: bool = Field(
        default=True,
        description="Capture the headers of every packet at the server's link (default), into "
        "traffic/ingress.pcapng of the run directory; false: count only.",
    )
    file_size: Size = Field(
        default=256 * 2**20,
        ge=2**16,
        description="Bytes after which the capture begins another file; default 256MiB.",
    )
    total_size: Size = Field(
        default=4 * 2**30,
        ge=2**16,
        description="The most bytes of all the capture's files; default 4GiB. Later packets are not "
        "captured, and the run is then not reconciled.",
    )
    period: Duration = Field(
        default=1.0,
        ge=0.1,
        description="Time between two samples of every link's counters; default 1s.",
    )
