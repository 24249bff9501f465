"""What ``testbed plan`` says of durations: drawn as the run will draw them, and looked at.

Every device is asked for the same number of durations, the first ones of its own stream, so that
what is shown is of this experiment's devices and seed and not of the law in general.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.cli.plan_classes import law
from testbed.durations import Durations
from testbed.planning.times import mean_of, members
from testbed.training.times import Purpose
from testbed.training.times import durations as by_class

if TYPE_CHECKING:
    from testbed.planning.plan import Plan

DRAWS = 20_000
"""Durations drawn in all, or one for each device if there are more devices."""
BINS = 40
_WORDS: dict[Purpose, str] = {"compute": "computing", "waiting": "waiting"}
"""The sections of the experiment file in words."""
_BLOCKS = " ▁▂▃▄▅▆▇█"
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_NAME, _COLUMN = 16, 10
"""Widths in characters."""

Seconds: TypeAlias = npt.NDArray[np.float64]


def describe(plan: "Plan") -> list[str]:
    """The lines about computing and waiting; none of what takes no time.

    Raises:
        SpecError: a trace cannot be used.
    """
    lines: list[str] = []
    for purpose, words in _WORDS.items():
        for title, section, durations, devices in _by_section(plan, purpose, words):
            if mean_of(durations, devices) > 0:
                lines += [f"{title}: {law(section)}", *_drawn(durations, section, devices)]
                lines += _changes(durations, devices)
    return lines


def histogram(seconds: Seconds, longest: float) -> str:
    """One line of blocks: ``BINS`` bins from 0 to ``longest`` > 0, the fullest a whole block.

    A bin that is not empty shows at least the lowest block; what is longer is left out.
    """
    counts, _ = np.histogram(seconds, BINS, (0.0, longest))
    heights = np.ceil(counts / max(counts.max(), 1) * (len(_BLOCKS) - 1)).astype(int)
    return "".join(_BLOCKS[height] for height in heights)


def _by_section(
    plan: "Plan", purpose: Purpose, words: str
) -> list[tuple[str, dict[str, Any], Durations, Sequence[int]]]:
    """What is said together: the devices of classes that have the same section."""
    general = getattr(plan.spec, purpose)
    classes, made = plan.spec.devices.classes, by_class(plan.settings, purpose)
    if not classes:
        return [(words, general.model_dump(mode="json"), made[0], range(plan.settings.workers))]
    sections = [one.of(purpose, general) for one in classes]
    found: list[tuple[str, dict[str, Any], Durations, Sequence[int]]] = []
    for i, section in enumerate(sections):
        same = [j for j, other in enumerate(sections) if other == section]
        if same[0] == i:
            devices = [device for j in same for device in members(plan, j)]
            names = ", ".join(classes[j].name for j in same)
            title = words if len(same) == len(sections) else f"{words} ({names})"
            found.append((title, section.model_dump(mode="json"), made[i], sorted(devices)))
    return found


def _drawn(durations: Durations, section: dict[str, Any], devices: Sequence[int]) -> list[str]:
    each = max(1, DRAWS // durations.devices)
    drawn = np.empty((len(devices), each))
    for i, device in enumerate(devices):
        one = durations.of_device(device)
        drawn[i] = [one.sample(-math.inf) for _ in range(each)]  # before any change
    headings = ("devices", "mean", "sd", "5 %", "50 %", "95 %")
    groups = section.get("classes", ())
    label = "  share × factor" if groups else ""
    lines = [label.ljust(_NAME) + "".join(heading.rjust(_COLUMN) for heading in headings)]
    lines += _rows("  all", drawn)
    members = np.array(durations.classes)[list(devices)]
    for number, group in enumerate(groups):
        name = f"  {group['share']} × {group['factor']:g}"
        lines += _rows(name, drawn[members == number])
    return lines


def _rows(name: str, drawn: Seconds) -> list[str]:
    """A row of figures and a histogram below; ``drawn`` has a row for each device."""
    if not len(drawn):
        return [name.ljust(_NAME) + "0".rjust(_COLUMN)]
    *quantiles, most = np.quantile(drawn, (0.05, 0.5, 0.95, 0.99))
    figures = [f"{len(drawn):,}", *map(_time, (drawn.mean(), drawn.std(), *quantiles))]
    longest = float(most) or float(drawn.max())
    row = name.ljust(_NAME) + "".join(figure.rjust(_COLUMN) for figure in figures)
    if not longest:
        return [row]
    return [row, f"{'0 '.rjust(_NAME)}|{histogram(drawn, longest)}| {_time(longest)}"]


def _changes(durations: Durations, devices: Sequence[int]) -> list[str]:
    return [
        f"  from {_time(change.at)} on, {len(change.devices.intersection(devices)):,} of "
        f"{len(devices):,} devices take {change.factor:g} times as long"
        for change in durations.changes
    ]


def _time(seconds: float) -> str:
    """Three digits and a unit: ``69.3 ms``."""
    if seconds >= 999.5:
        return f"{seconds:,.0f} s"
    # What would be rounded up to 1,000 of a unit is 1 of the next.
    size, unit = next((u for u in _UNITS if seconds >= 0.9995 * u[0]), (0.0, ""))
    if not unit:
        return "0 s"  # or less than 1 ns, as is the rounding in a constant's deviation
    value = seconds / size
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {unit}"
