"""The experiment file's background traffic: flows of datagrams between devices."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from testbed.experiment.alternatives import ChosenByValue
from testbed.experiment.sections.section import Section, as_tuple
from testbed.network.segments import LARGEST_DATAGRAM
from testbed.units import Duration, Rate, Size

MOST_FLOWS = 1000
"""The most flows of one run: each takes descriptors, and one process sends them all."""


def _check_size(size: int) -> int:
    if not 1 <= size <= LARGEST_DATAGRAM:
        raise ValueError(
            f"must be at least 1 and at most {LARGEST_DATAGRAM} bytes, which fill a frame, not {size}"
        )
    return size


def _more_than_nothing(seconds: float) -> float:
    if seconds == 0:
        raise ValueError("must be more than 0: for a flow without pauses use `law: constant`")
    return seconds


class _FlowKeys(Section):
    # The keys of all laws; each law's own section begins with ``law``, by which it is chosen.
    from_: str = Field(
        alias="from",
        min_length=1,
        description="The device that sends: server, worker-3, or another by its name.",
        examples=["worker-3"],
    )
    to: str = Field(min_length=1, description="The device that receives.", examples=["server"])
    rate: Rate = Field(
        description="Rate on the wire in bit/s, headers down to Ethernet included; under on-off while "
        "it is on.",
        examples=["2mbit"],
    )
    size: Annotated[Size, AfterValidator(_check_size)] = Field(
        default=1400,
        description="Bytes of a datagram's payload; default 1,400. On the wire it has 42 more.",
    )

    @model_serializer(mode="wrap")
    def _by_alias(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        data: dict[str, object] = handler(self)
        law = {"law": data.pop("law")} if "law" in data else {}
        names = {"from": data.pop("from_"), "to": data.pop("to")}
        return {**names, **law, **data}


class _SteadyLaw(Section):
    law: Literal["constant", "poisson"] = Field(
        description="constant: at equal intervals (default); poisson: at exponential intervals."
    )


class _OnOffLaw(Section):
    law: Literal["on-off"] = Field(
        description="Datagrams at equal intervals in periods, with pauses between them."
    )


class SteadyFlow(_FlowKeys, _SteadyLaw):
    """A flow without pauses."""

    @property
    def pauses(self) -> dict[str, float]:
        """The mean lengths of periods and pauses: none."""
        return {}


class OnOffFlow(_FlowKeys, _OnOffLaw):
    """A flow with pauses; the lengths of its periods and pauses are exponential."""

    on: Annotated[Duration, AfterValidator(_more_than_nothing)] = Field(
        description="Mean length of a period in which it sends.", examples=["1s"]
    )
    off: Annotated[Duration, AfterValidator(_more_than_nothing)] = Field(
        description="Mean length of a pause.", examples=["2s"]
    )

    @property
    def pauses(self) -> dict[str, float]:
        """The mean lengths of periods and pauses, in seconds."""
        return {"on": self.on, "off": self.off}


FlowSpec: TypeAlias = Annotated[SteadyFlow | OnOffFlow, ChosenByValue("law", default="constant")]
"""One flow."""
FlowsSpec: TypeAlias = Annotated[tuple[FlowSpec, ...], BeforeValidator(as_tuple)]
"""All flows of an experiment."""
FLOWS: Any = Field(
    default=(),
    description="Background traffic: datagrams between devices while they train or their programs run, "
    "which is no ingress. Under the virtual clock what they take of links is computed. Default: none.",
    examples=[[{"from": "worker-3", "to": "server", "rate": "2mbit"}]],
)
"""The field of all flows."""
