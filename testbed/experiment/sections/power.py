"""The experiment file's section on the electric power of devices."""

from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from testbed.experiment.sections.section import Section
from testbed.experiment.units import JoulesPerByte, Watts


class PowerSpec(Section):
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

    @model_serializer(mode="wrap")
    def _without_missing(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        return {key: value for key, value in data.items() if value is not None}
