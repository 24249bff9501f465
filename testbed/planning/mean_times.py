"""Mean computing and waiting times of a run's devices, as their random streams give them."""

from collections.abc import Sequence

import numpy as np

from testbed.durations import Durations
from testbed.planning.plan import Plan
from testbed.training.times import PURPOSES, Purpose, durations


def members(plan: Plan, number: int) -> list[int]:
    """Return the devices of class ``number``; all devices if there are no classes."""
    settings = plan.settings
    return [i for i in range(settings.workers) if (settings.class_of or {i: 0})[i] == number]


def mean_of(durations: Durations, devices: Sequence[int]) -> float:
    """Return the mean duration over some devices in seconds; over all if ``devices`` is empty."""
    if len(devices) in (0, durations.devices):
        return durations.mean
    return sum(durations.of_device(device).mean for device in devices) / len(devices)


def means(plan: Plan) -> dict[str, dict[str, float]]:
    """Return each section's mean over devices, in seconds and before any change, for ``--json``.

    Raises:
        SpecError: a trace cannot be used.
    """
    sizes = plan.spec.devices.class_sizes or [1]
    return {
        purpose: {"mean": float(np.average(class_means(plan, purpose), weights=sizes))}
        for purpose in PURPOSES
    }


def class_means(plan: Plan, purpose: Purpose) -> list[float]:
    """Return the mean over the devices of each class, or over all without classes, as in ``means``.

    Raises:
        SpecError: a trace cannot be used.
    """
    return [
        mean_of(durations, members(plan, i))
        for i, durations in enumerate(durations(plan.settings, purpose))
    ]
