"""The experiment file's sections on the links, and on capturing and counting their traffic."""

from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from testbed.experiment.sections.section import Section
from testbed.experiment.units import Duration, Percentage, Rate, Size


class NetworkSpec(Section):
    """The link of every worker."""

    uplink: Rate | None = Field(
        default=None,
        description="Rate from a worker to the server, in bit/s; default (null): not shaped.",
    )
    downlink: Rate | None = Field(
        default=None,
        description="Rate from the server to a worker, in bit/s; default (null): not shaped.",
    )
    delay: Duration = Field(
        default=0.0,
        description="Delay added on the uplink, in seconds; default 0. Needs the kernel's netem.",
    )
    loss: Percentage = Field(
        default=0.0,
        description="Share of a worker's uplink packets that is lost at random; default 0. "
        "Needs the kernel's netem.",
    )
    probe: bool = Field(
        default=True,
        description="Measure rate, delay and loss of a sample of the shaped links before training, and "
        "record them with the requested values (default; wall clock only); false: measure nothing.",
    )

    @model_serializer(mode="wrap")
    def _without_the_probe(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave the default out, so that a file without the key is dumped without it."""
        data: dict[str, Any] = handler(self)
        return {key: value for key, value in data.items() if key != "probe" or not value}


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
