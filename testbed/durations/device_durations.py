"""The durations of every device of a run, from a resolved section of the experiment file.

``Durations`` is made once per run, before workers are forked: it reads the trace, if there is one, and
assigns devices to classes. ``Durations.of_device`` then costs some microseconds. Each device draws from
a stream of its own, named by the purpose, and no draw of one changes another's.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from operator import mul
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from testbed.durations.laws import Cvb, Law, law_named
from testbed.durations.shares import classes, reached
from testbed.durations.traces import DurationTrace, Order, load_trace
from testbed.errors import SpecError
from testbed.random_streams import stream


class DurationSource(Protocol):
    """The source of one device's durations: a law, or a place in a trace.

    Attributes:
        mean: expected duration in seconds.
    """

    @property
    def mean(self) -> float: ...

    def sample(self, stream: np.random.Generator) -> float:
        """Return the next duration in seconds."""
        ...


@dataclass(frozen=True, slots=True)
class Change:
    """A change of some devices' speed, from a time on.

    Attributes:
        at: seconds since training began.
        factor: the factor by which their durations are multiplied from then on.
        devices: the devices' numbers.
    """

    at: float
    factor: float
    devices: frozenset[int]


class DeviceDurations:
    """The durations of one device, which own its random stream.

    Attributes:
        mean: expected duration in seconds, with the factor of the device's class and before any change.
    """

    __slots__ = ("_changes", "_factor", "_sample", "_stream", "mean")

    def __init__(
        self,
        source: DurationSource,
        stream: np.random.Generator,
        factor: float,
        changes: tuple[Change, ...],
    ) -> None:
        self.mean = source.mean * factor
        self._sample = source.sample
        self._stream = stream
        self._factor = factor
        self._changes = changes

    @property
    def least_mean(self) -> float:
        """The least mean that the device has at any time, in seconds."""
        factors = (change.factor for change in self._changes)
        return self.mean * min(accumulate(factors, mul, initial=1.0))

    def sample(self, now: float) -> float:
        """Draw one duration.

        Args:
            now: when the duration begins, in seconds since training began; a change that comes while it
                lasts does not stretch it.

        Returns:
            The duration in seconds.

        Raises:
            SpecError: a law of a user's own has drawn none.
        """
        drawn = self._sample(self._stream)
        if not (isinstance(drawn, float) and 0 <= drawn < math.inf):
            drawn = self._checked(drawn)
        seconds = drawn * self._factor
        for change in self._changes:
            if now >= change.at:
                seconds *= change.factor
        return seconds

    def _checked(self, drawn: Any) -> float:
        """Return as a float what is none but equals one, such as an integer or a float32 of numpy's."""
        try:
            seconds = float(drawn)
        except (TypeError, ValueError):
            seconds = math.nan
        if 0 <= seconds < math.inf:
            return seconds
        raise SpecError(
            f"{self._sample.__qualname__} has drawn {drawn!r:.60}: a duration is a number of seconds, "
            "0 or more and finite"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Durations:
    """The durations of all devices for one purpose.

    Attributes:
        seed: the experiment's seed.
        purpose: what they are for, e.g. ``"waiting"``; it names the random streams.
        devices: the number of devices, numbered from 0.
        kind: the source that they are drawn from.
        order: the order in which a trace's rows are used.
        classes: the class of each device, from 0.
        factors: the factor of each class.
        changes: the changes in order of time.
    """

    seed: int
    purpose: str
    devices: int
    kind: Law | Cvb | DurationTrace
    order: Order
    classes: tuple[int, ...]
    factors: tuple[float, ...]
    changes: tuple[Change, ...]

    @classmethod
    def of(cls, section: Mapping[str, Any], seed: int, purpose: str, devices: int) -> "Durations":
        """Make the durations from a section, as ``DurationSpec.model_dump`` returns it.

        Raises:
            SpecError: the section's trace cannot be used.
        """
        groups = section.get("classes") or [{"share": 1.0, "factor": 1.0}]
        changes = sorted(section.get("changes", ()), key=lambda change: float(change["at"]))
        return cls(
            seed,
            purpose,
            devices,
            _kind(section),
            section.get("order", "sequence"),
            tuple(classes([group["share"] for group in groups], seed, devices).tolist()),
            tuple(group["factor"] for group in groups),
            tuple(
                Change(c["at"], c["factor"], reached(c["share"], seed, devices)) for c in changes
            ),
        )

    @classmethod
    def of_classes(
        cls, sections: Sequence[Mapping[str, Any]], seed: int, purpose: str, devices: int
    ) -> list["Durations"]:
        """Make the durations of several sections; equal sections share them, so a trace is read once.

        A device draws from the same stream, whichever of them it is asked of.

        Raises:
            SpecError: a trace cannot be used.
        """
        made: list[Durations] = []
        for i, section in enumerate(sections):
            first = list(sections).index(section)
            made.append(made[first] if first < i else cls.of(section, seed, purpose, devices))
        return made

    def of_device(self, device: int) -> DeviceDurations:
        """Return the durations of one device, from the beginning of its stream."""
        return DeviceDurations(
            self._source(device),
            stream(self.seed, self.purpose, device),
            self.factors[self.classes[device]],
            tuple(change for change in self.changes if device in change.devices),
        )

    @property
    def mean(self) -> float:
        """The mean over the devices of their expected durations before any change, in seconds."""
        means = (
            self._source(device).mean * self.factors[self.classes[device]]
            for device in range(self.devices)
        )
        return sum(means) / self.devices

    def _source(self, device: int) -> DurationSource:
        match self.kind:
            case Law():
                return self.kind
            case Cvb():
                # A stream of its own: whether machines differ must not change the tasks' draws.
                return self.kind.machine(stream(self.seed, f"{self.purpose} machine", device))
            case DurationTrace():
                return self.kind.of_device(device, self.devices, self.order)


def _kind(section: Mapping[str, Any]) -> Law | Cvb | DurationTrace:
    name = section["distribution"]
    if name == "trace":
        return load_trace(Path(section["file"]))
    kind: type[Law | Cvb] = Cvb if name == "cvb" else law_named(name)
    return kind(**{field.name: section[field.name] for field in fields(kind)})
