"""The durations in ``testbed plan``: drawn as the run will draw them, with statistics and histograms.

Every device draws the same number of durations, the first ones of its own stream, so that the plan
shows this experiment's devices and seed and not the distribution in general.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.cli.plan_classes import distribution_text
from testbed.durations import Durations
from testbed.planning.mean_times import mean_of, members
from testbed.training.times import Purpose, sections_of_kinds
from testbed.training.times import durations as by_class

if TYPE_CHECKING:
    from testbed.planning.plan import Plan

DRAWS = 20_000
"""The number of durations drawn over all devices; at least one for each device is drawn."""
BINS = 40
_WORDS: dict[Purpose, str] = {"compute": "computing", "waiting": "waiting"}
"""The sections of the experiment file, each with its name in the plan."""
_BLOCKS = " ▁▂▃▄▅▆▇█"
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_NAME, _COLUMN = 16, 10
"""Widths of the columns in characters."""

Seconds: TypeAlias = npt.NDArray[np.float64]


def describe(plan: "Plan") -> list[str]:
    """Return the lines about computing and waiting; a section whose mean is 0 has none.

    Raises:
        SpecError: a trace cannot be used.
    """
    lines: list[str] = []
    for purpose, words in _WORDS.items():
        for title, section, durations, devices in _by_section(plan, purpose, words):
            if mean_of(durations, devices) > 0:
                lines += [
                    f"{title}: {distribution_text(section)}",
                    *_drawn(durations, section, devices),
                ]
                lines += _changes(durations, devices)
    return lines


def histogram(seconds: Seconds, longest: float) -> str:
    """Return a line of blocks: ``BINS`` bins from 0 to ``longest`` > 0, the fullest a whole block.

    A bin that is not empty shows at least the lowest block; longer durations are left out.
    """
    counts, _ = np.histogram(seconds, BINS, (0.0, longest))
    heights = np.ceil(counts / max(counts.max(), 1) * (len(_BLOCKS) - 1)).astype(int)
    return "".join(_BLOCKS[height] for height in heights)


def _by_section(
    plan: "Plan", purpose: Purpose, words: str
) -> list[tuple[str, dict[str, Any], Durations, Sequence[int]]]:
    """Return a title, section, durations and devices for each group of classes with equal sections."""
    classes, made = plan.spec.devices.classes, by_class(plan.settings, purpose)
    sections = sections_of_kinds(plan.settings, purpose)
    if not classes:
        alone = sections[0].model_dump(mode="json")
        return [(words, alone, made[0], range(plan.settings.workers))]
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
        stream = durations.of_device(device)
        drawn[i] = [stream.sample(-math.inf) for _ in range(each)]  # before any change
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
    """Return a row of figures and the histogram below it; ``drawn`` has a row for each device."""
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
    """Return three digits and a unit: ``69.3 ms``."""
    if seconds >= 999.5:
        return f"{seconds:,.0f} s"
    # A value that rounds up to 1,000 of a unit is written as 1 of the next unit.
    size, unit = next((u for u in _UNITS if seconds >= 0.9995 * u[0]), (0.0, ""))
    if not unit:
        return "0 s"  # or less than 1 ns, such as a rounding error in the deviation of a constant
    value = seconds / size
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {unit}"
