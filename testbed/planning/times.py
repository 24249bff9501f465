"""How long the devices of a run compute and wait, on average, as their random streams have it."""

from collections.abc import Sequence

import numpy as np

from testbed.durations import Durations
from testbed.planning.plan import Plan
from testbed.training.times import PURPOSES, Purpose, durations


def members(plan: Plan, number: int) -> list[int]:
    """The devices of a class; all devices where there are no classes."""
    settings = plan.settings
    return [i for i in range(settings.workers) if (settings.class_of or {i: 0})[i] == number]


def mean_of(durations: Durations, devices: Sequence[int]) -> float:
    """Over some devices; over all if these are none."""
    if len(devices) in (0, durations.devices):
        return durations.mean
    return sum(durations.of_device(device).mean for device in devices) / len(devices)


def means(plan: Plan) -> dict[str, dict[str, float]]:
    """Of each section the mean over devices, in seconds and before any change, for ``--json``.

    Raises:
        SpecError: a trace cannot be used.
    """
    sizes = plan.spec.devices.class_sizes or [1]
    return {
        purpose: {"mean": float(np.average(class_means(plan, purpose), weights=sizes))}
        for purpose in PURPOSES
    }


def class_means(plan: Plan, purpose: Purpose) -> list[float]:
    """The mean over each class's devices, or over all where there are no classes, as ``means``.

    Raises:
        SpecError: a trace cannot be used.
    """
    return [
        mean_of(durations, members(plan, i))
        for i, durations in enumerate(durations(plan.settings, purpose))
    ]
