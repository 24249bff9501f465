"""The experiment file's section on what messages cost servers, under the virtual clock."""

from pydantic import Field

from testbed.experiment.sections.section import Section
from testbed.experiment.units import Duration


class CostsSpec(Section):
    """The processor time that messages cost a server or an aggregator."""

    message: Duration = Field(
        default=0.0,
        description="Each message that a server receives or sends: a push, a question for parameters, "
        "parameters; default 0.",
        examples=["50us"],
    )
    byte: Duration = Field(
        default=0.0, description="Each byte of a message; default 0.", examples=["0.3ns"]
    )
    apply: Duration = Field(
        default=0.0,
        description="An update that a server takes in, for each parameter that the server holds; "
        "default 0.",
        examples=["1ns"],
    )
