"""The schedule of a run's faults: which devices they strike, and when; the seed alone decides.

- After pushes: the number of pushes until a device is struck is geometric; drawn once for each rule and
  device, and again after each strike, as the device may come back.
- In time: once, or again and again with exponential times from the end of one fault to the beginning of
  the next; drawn on demand, from a stream of each rule and device.
- At an iteration, and as a trace says.
- Devices that arrive and leave are in it as well (``testbed.faults.presence``).
"""

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from testbed.device_names import SERVER_NUMBER, server_index
from testbed.faults.fault import Fault
from testbed.faults.presence import absences
from testbed.faults.rules import EachPush, FaultRule, FaultTrace, Intervals, Laws, Moment, Version
from testbed.random_streams import stream


class TimedFault(NamedTuple):
    """A fault that strikes devices at a time, in seconds of training."""

    time: float
    devices: tuple[int, ...]
    fault: Fault


class Schedule:
    """The faults of one run.

    Attributes:
        rules: the number of rules.
    """

    def __init__(self, rules: Sequence[FaultRule], seed: int, workers: int) -> None:
        """Prepare the schedule of a run with so many workers."""
        self.rules = len(rules)
        self._seed = seed
        self._all = rules
        self._rows: list[TimedFault] = []
        self._iterations: dict[int, list[tuple[tuple[int, ...], Fault]]] = {}
        self._after_pushes: list[_AfterPushes | None] = [None] * workers
        for rule in rules:
            match rule.when:
                case Version(iteration):
                    self._add_at(iteration, tuple(rule.devices), rule.fault)
                case EachPush(probability):
                    self._add_pushes(rule, probability)
                case FaultTrace(rows):
                    for row in rows:
                        if row.time is not None:
                            self._rows.append(TimedFault(row.time, (row.device,), row.fault))
                        elif row.iteration is not None:
                            self._add_at(row.iteration, (row.device,), row.fault)
        self._sorted = sorted(self._iterations)

    def _add_at(self, iteration: int, devices: tuple[int, ...], fault: Fault) -> None:
        self._iterations.setdefault(iteration, []).append((devices, fault))

    def _add_pushes(self, rule: FaultRule, probability: float) -> None:
        for device in rule.devices:
            own = self._after_pushes[device]
            if own is None:
                own = self._after_pushes[device] = _AfterPushes()
            own.add(probability, rule.fault, stream(self._seed, rule.stream, device))

    def faults(self) -> Iterator[tuple[Sequence[int], Fault]]:
        """Yield the devices and the fault, for every fault that may happen."""
        for rule in self._all:
            yield from rule.faults()

    @property
    def longest_absence(self) -> float:
        """The longest time for which a killed worker is away, in seconds; 0 if none comes back.

        It is infinite where a law draws it.
        """
        if any(rule.brings_back for rule in self._all):
            return math.inf
        return max(
            (
                fault.duration or 0.0
                for devices, fault in self.faults()
                if fault.kind == "kill" and min(devices, default=0) > SERVER_NUMBER
            ),
            default=0.0,
        )

    def after_push(self, device: int, pushes: int) -> Sequence[Fault]:
        """Return the faults that strike a device after its push of this number; none an aggregator.

        Args:
            pushes: the push's number from 1, counted over the device's incarnations.
        """
        own = self._after_pushes[device] if device < len(self._after_pushes) else None
        return () if own is None else own.at(pushes)

    def timed(self) -> Iterator[TimedFault]:
        """Return the timed faults, of which there may be no end.

        In order of time; at one moment in the order of the rules, then of the devices.
        """
        return heapq.merge(
            sorted(self._rows, key=_order),
            *itertools.chain.from_iterable(map(self._timed_by, self._all)),
            key=_order,
        )

    def _timed_by(self, rule: FaultRule) -> Iterator[Iterator[TimedFault]]:
        """Yield the timed faults of a rule, of several devices each by itself; none of a trace."""
        fault, devices = rule.fault, tuple(rule.devices)
        match rule.when:
            case Laws():
                for own in absences(rule, self._seed, len(self._after_pushes)):
                    yield (TimedFault(time, (device,), absence) for time, device, absence in own)
            case Moment(time):
                yield iter([TimedFault(time, devices, fault)])
            case Intervals(mean_time):
                together = fault.kind == "partition" and devices  # a small share may have no device
                for struck in [devices] if together else [(device,) for device in devices]:
                    generator = stream(self._seed, rule.stream, self._place(struck[0]))
                    yield _repeatedly(mean_time, struck, fault, generator)

    def _place(self, device: int) -> int:
        """Return a device's place among those that a rule may strike.

        Those are the first server, the workers, and the aggregators or the other servers: no rule has
        both.
        """
        if device >= SERVER_NUMBER:
            return device - SERVER_NUMBER
        return len(self._after_pushes) + server_index(device)

    def at_iteration(self, version: int) -> Sequence[tuple[tuple[int, ...], Fault]]:
        """Return the devices and the fault, for each fault that strikes at this version."""
        return self._iterations.get(version, ())

    def next_iteration(self, version: int) -> int | None:
        """Return the first later version at which a fault strikes, or None."""
        return next((one for one in self._sorted if one > version), None)


class _DrawnPush(NamedTuple):
    """The next push after which a rule's fault strikes a device; the first in order comes first."""

    push: int
    rule: int
    probability: float
    fault: Fault
    generator: np.random.Generator


class _AfterPushes:
    """The faults that strike one device after its pushes."""

    def __init__(self) -> None:
        self._draws: list[_DrawnPush] = []
        self._known: dict[int, list[Fault]] = {}

    def add(self, probability: float, fault: Fault, generator: np.random.Generator) -> None:
        first = int(generator.geometric(probability))
        heapq.heappush(self._draws, _DrawnPush(first, fault.rule, probability, fault, generator))

    def at(self, pushes: int) -> Sequence[Fault]:
        while (draw := self._draws[0]).push <= pushes:
            self._known.setdefault(draw.push, []).append(draw.fault)
            after = draw.push + int(draw.generator.geometric(draw.probability))
            heapq.heapreplace(self._draws, draw._replace(push=after))
        return self._known.get(pushes, ())


def _repeatedly(
    mean: float, devices: tuple[int, ...], fault: Fault, generator: np.random.Generator
) -> Iterator[TimedFault]:
    time = float(generator.exponential(mean))
    while True:
        yield TimedFault(time, devices, fault)
        if fault.duration is None:
            return
        time += fault.duration + float(generator.exponential(mean))


def _order(timed: TimedFault) -> tuple[float, bool, int, tuple[int, ...]]:
    # Absences come first, so that those at the beginning are before training.
    return timed.time, not timed.fault.away, timed.fault.rule, timed.devices
