"""The experiment file's traces of rates: how the rate of a device's link changes over time.

The files are read when the experiment file is checked, and the spec holds what they say: a run that is
resumed, or whose devices are elsewhere, needs no file.
"""

from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from testbed.experiment.rate_trace_files import (
    DIRECTIONS,
    Direction,
    as_json,
    read_csv,
    read_mahimahi,
)
from testbed.experiment.sections.section import Section, SparseSection, as_tuple
from testbed.experiment.sections.timing import TRACES, file_beside
from testbed.rate_trace import RateTrace
from testbed.units import Duration

_File = Annotated[str, AfterValidator(file_beside)]
DEFAULT_BIN = 1.0
"""Seconds for which a Mahimahi trace has one rate, by default."""


class RateSteps(Section):
    """The rates of one direction, as they were in a file."""

    times: Annotated[tuple[float, ...], BeforeValidator(as_tuple)] = Field(
        description="When each rate begins, in seconds of training, from 0.",
        examples=[[0, 30]],
    )
    rates: Annotated[tuple[int, ...], BeforeValidator(as_tuple)] = Field(
        description="The rates in bit/s; 0: nothing passes.",
        examples=[[1_000_000, 8_000]],
    )
    period: float | None = Field(
        default=None,
        gt=0,
        description="Seconds after which the trace begins again; null: the last rate holds for good.",
    )

    @model_validator(mode="after")
    def _makes_a_trace(self) -> "RateSteps":
        if any(rate < 0 for rate in self.rates):
            raise ValueError("a rate is 0 or more")
        self.trace()
        return self

    def trace(self, *, spread: bool = False) -> RateTrace:
        """Return the trace."""
        return RateTrace.of(self.times, self.rates, self.period, spread=spread)


class TraceContent(SparseSection):
    """What the files of a trace say."""

    uplink: RateSteps | None = Field(default=None, description="The rates of the uplink.")
    downlink: RateSteps | None = Field(default=None, description="The rates of the downlink.")


class RateTraceSpec(SparseSection):
    """How the rate of a device's link changes over time: a CSV file, or Mahimahi's traces."""

    file: _File | None = Field(
        default=None,
        description="A CSV file with the columns time (in seconds; the first is 0), and uplink or "
        "downlink or both (rates with units; 0: nothing passes); relative to the experiment file's "
        "folder.",
        examples=["rates.csv"],
    )
    uplink: _File | None = Field(
        default=None,
        description="A packet-delivery trace of Mahimahi for the uplink, instead of a file: a line for "
        "each packet of 1,500 bytes, with its time in milliseconds; it begins again at its end.",
        examples=["verizon-lte.up"],
    )
    downlink: _File | None = Field(
        default=None,
        description="The same for the downlink.",
        examples=["verizon-lte.down"],
    )
    bin: Duration | None = Field(
        default=None,
        description="Mahimahi: the time for which packets are added up to one rate, in whole "
        f"milliseconds; default {DEFAULT_BIN:g}s.",
        examples=["100ms"],
    )
    repeat: Duration | None = Field(
        default=None,
        gt=0,
        description="CSV: the time after which the trace begins again; default (null): the last rate "
        "holds for good.",
        examples=["10min"],
    )
    spread: bool = Field(
        default=False,
        description="True: devices begin at places that are evenly spread over a trace that repeats; "
        "false: all begin at its beginning (default).",
    )
    content: TraceContent | None = Field(
        default=None,
        description="What the files said when the experiment was begun; written into a run's spec, and "
        "read anew where the files are given beside an experiment file.",
    )

    @field_validator("bin")
    @classmethod
    def _whole_milliseconds(cls, value: float | None) -> float | None:
        if value is not None and (value < 0.001 or abs(1000 * value - round(1000 * value)) > 1e-9):
            raise ValueError("must be whole milliseconds, at least 1ms")
        return value

    @model_validator(mode="after")
    def _read(self, info: ValidationInfo) -> "RateTraceSpec":
        mahimahi = self.uplink or self.downlink
        if self.file and mahimahi:
            raise ValueError("has a CSV file and a trace of Mahimahi: take one of them out")
        if self.file and self.bin is not None:
            raise ValueError("a CSV file has rates, which no bin adds up: take bin out")
        if mahimahi and self.repeat is not None:
            raise ValueError("a trace of Mahimahi begins again at its end: take repeat out")
        if not (self.file or mahimahi) and self.content is None:
            raise ValueError(
                "has no file: give it a CSV file, or traces of Mahimahi as uplink and downlink"
            )
        beside = TRACES in (info.context or {})
        if (self.content is None or beside) and (self.file or mahimahi):
            content = TraceContent.model_validate(as_json(self._traces()))
            object.__setattr__(self, "content", content)
        if not any(self.trace(direction) for direction in DIRECTIONS):
            raise ValueError("has rates of neither direction: give it uplink or downlink")
        if self.spread and not all(
            one.period for one in map(self.trace, DIRECTIONS) if one is not None
        ):
            raise ValueError(
                "a trace that does not repeat has no places to spread over: add repeat"
            )
        return self

    def _traces(self) -> dict[Direction, RateTrace]:
        if self.file:
            return read_csv(Path(self.file), self.repeat)
        width = DEFAULT_BIN if self.bin is None else self.bin
        return {
            direction: read_mahimahi(Path(path), width)
            for direction in DIRECTIONS
            if (path := getattr(self, direction)) is not None
        }

    def trace(self, direction: Direction) -> RateTrace | None:
        """Return the trace of a direction, or None if it has none."""
        steps: RateSteps | None = getattr(self.content, direction, None)
        return None if steps is None else steps.trace(spread=self.spread)
