"""The experiment file's section on the electric power of devices."""

from pydantic import Field

from testbed.experiment.sections.section import SparseSection
from testbed.units import JoulesPerByte, Watts


class PowerSpec(SparseSection):
    """The power of devices, in place of the figures of their hardware and of their link's profile."""

    idle: Watts | None = Field(
        default=None,
        description="Power of a device that is on and does nothing; default (null): the hardware's.",
        examples=["2.7W"],
    )
    busy: Watts | None = Field(
        default=None,
        description="Power of a device while one of its processors computes; default (null): the "
        "hardware's.",
        examples=["3.6W"],
    )
    sent: JoulesPerByte | None = Field(
        default=None,
        description="Energy of each byte that a device sends, in addition to these; default (null): "
        "that of the link's profile, or nothing.",
        examples=["3.5uJ"],
    )
    received: JoulesPerByte | None = Field(
        default=None,
        description="Energy of each byte that a device receives, likewise.",
        examples=["420nJ"],
    )
