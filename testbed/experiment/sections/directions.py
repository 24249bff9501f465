"""Values of a link that may differ by direction: a plain value, or ``{up: ..., down: ...}``.

A plain delay, jitter or loss is that of the uplink, and the downlink then has none: a delay of 20 ms
adds 20 ms to a round trip. A plain length of a queue is that of both directions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeAlias

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from testbed.experiment.sections.section import Section
from testbed.units import (
    Duration,
    Percentage,
    Size,
    parse_duration,
    parse_percentage,
    parse_size,
)

SMALLEST_QUEUE, LARGEST_QUEUE = 3_028, 2**32 - 1
"""Bytes of the shortest queue, two frames, and of the longest that the kernel counts."""
LONGEST_DELAY = 240.0
"""Seconds of the longest delay and jitter: netem keeps them in 32 bits of 64 ns."""


class _Directions(Section):
    """A value for each direction, which is dumped as a plain value if that means the same."""

    up: float | None = None
    down: float | None = None

    @property
    def _is_plain(self) -> bool:
        return self.up is not None and self.down == 0

    @model_serializer(mode="wrap")
    def _short_form(self, handler: SerializerFunctionWrapHandler) -> Any:
        data = handler(self)
        if self._is_plain:
            return data["up"]
        return {key: value for key, value in data.items() if value is not None}


class Delays(_Directions):
    """A delay for each direction."""

    up: Duration | None = Field(
        default=None, le=LONGEST_DELAY, description="Towards the server, in seconds."
    )
    down: Duration | None = Field(
        default=None, le=LONGEST_DELAY, description="From the server, in seconds."
    )


class Percentages(_Directions):
    """A share for each direction."""

    up: Percentage | None = Field(default=None, description="Towards the server.")
    down: Percentage | None = Field(default=None, description="From the server.")


class Sizes(_Directions):
    """A size for each direction."""

    up: Size | None = Field(
        default=None, ge=SMALLEST_QUEUE, le=LARGEST_QUEUE, description="Towards the server."
    )
    down: Size | None = Field(
        default=None, ge=SMALLEST_QUEUE, le=LARGEST_QUEUE, description="From the server."
    )

    @property
    def _is_plain(self) -> bool:
        return self.up is not None and self.up == self.down


@dataclass(frozen=True)
class _OrPlain:
    """Annotation of a field whose mapping of two directions may be a plain value.

    Attributes:
        parse: checks a plain value.
        plain: the type of a plain value.
        down: the downlink's value where the value is plain; None: the same value.
    """

    parse: Callable[[object], object]
    plain: Any
    down: object = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(partial(_both, self), handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [TypeAdapter(self.plain).json_schema(), handler(schema)]}


def _both(how: _OrPlain, value: object) -> object:
    if isinstance(value, Section | Mapping):
        return value
    how.parse(value)  # so that a mistake is one of this key and not of a direction
    return {"up": value, "down": value if how.down is None else how.down}


def parse_queue(value: object) -> int:
    """Return the bytes of a queue.

    Raises:
        ValueError: it is no size, has no room for two frames, or is above ``LARGEST_QUEUE``.
    """
    size = parse_size(value)
    if size < SMALLEST_QUEUE:
        raise ValueError(
            f"'{value}' is too short for a queue: it must have room for two frames, {SMALLEST_QUEUE}B"
        )
    if size > LARGEST_QUEUE:
        raise ValueError(f"'{value}' is too long for a queue: it may be at most {LARGEST_QUEUE}B")
    return size


def parse_delay(value: object) -> float:
    """Return the seconds of a delay or a jitter.

    Raises:
        ValueError: it is no duration, or longer than ``LONGEST_DELAY``.
    """
    delay = parse_duration(value)
    if delay > LONGEST_DELAY:
        raise ValueError(f"'{value}' is longer than a link can delay: at most {LONGEST_DELAY:g}s")
    return delay


DirectedDuration: TypeAlias = Annotated[Delays, _OrPlain(parse_delay, Duration, 0)]
"""A duration in seconds for each direction; a plain one is the uplink's."""
DirectedPercentage: TypeAlias = Annotated[Percentages, _OrPlain(parse_percentage, Percentage, 0)]
"""A share for each direction; a plain one is the uplink's."""
DirectedSize: TypeAlias = Annotated[Sizes, _OrPlain(parse_queue, Size)]
"""A size in bytes for each direction; a plain one is that of both."""
