"""What ``testbed plan`` says of durations: drawn as the run will draw them, and looked at.

Every device is asked for the same number of durations, the first ones of its own stream, so that
what is shown is of this experiment's devices and seed and not of the law in general.
"""

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.durations import Durations

if TYPE_CHECKING:
    from testbed.orchestrator.plan import Plan

DRAWS = 20_000
"""Durations drawn in all, or one for each device if there are more devices."""
BINS = 40
_PURPOSES = {"compute": "computing", "waiting": "waiting"}
"""The sections of the experiment file, which name the random streams, in words."""
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
    for purpose, words in _PURPOSES.items():
        durations = _durations(plan, purpose)
        if durations.mean > 0:
            section = plan.spec.model_dump(mode="json")[purpose]
            lines += [f"{words}: {_law(section)}", *_drawn(durations, section)]
            lines += _changes(durations, section)
    return lines


def means(plan: "Plan") -> dict[str, dict[str, float]]:
    """Of each section the mean over devices, in seconds and before any change, for ``--json``.

    Raises:
        SpecError: a trace cannot be used.
    """
    return {purpose: {"mean": _durations(plan, purpose).mean} for purpose in _PURPOSES}


def histogram(seconds: Seconds, longest: float) -> str:
    """One line of blocks: ``BINS`` bins from 0 to ``longest`` > 0, the fullest a whole block.

    A bin that is not empty shows at least the lowest block; what is longer is left out.
    """
    counts, _ = np.histogram(seconds, BINS, (0.0, longest))
    heights = np.ceil(counts / max(counts.max(), 1) * (len(_BLOCKS) - 1)).astype(int)
    return "".join(_BLOCKS[height] for height in heights)


def _durations(plan: "Plan", purpose: str) -> Durations:
    settings = plan.settings
    return Durations.of(getattr(settings, purpose), settings.seed, purpose, settings.workers)


def _law(section: dict[str, Any]) -> str:
    """The distribution and its options, as the experiment file writes them."""
    options = [
        f"{key} {value}"
        for key, value in section.items()
        if key not in ("distribution", "classes", "changes")
    ]
    return ", ".join([section["distribution"], *options])


def _drawn(durations: Durations, section: dict[str, Any]) -> list[str]:
    each = max(1, DRAWS // durations.devices)
    drawn = np.empty((durations.devices, each))
    for device in range(durations.devices):
        one = durations.of_device(device)
        drawn[device] = [one.sample(-math.inf) for _ in range(each)]  # before any change
    headings = ("devices", "mean", "sd", "5 %", "50 %", "95 %")
    groups = section.get("classes", ())
    label = "  share × factor" if groups else ""
    lines = [label.ljust(_NAME) + "".join(heading.rjust(_COLUMN) for heading in headings)]
    lines += _rows("  all", drawn)
    members = np.array(durations.classes)
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


def _changes(durations: Durations, section: dict[str, Any]) -> list[str]:
    return [
        f"  from {_time(change.at)} on, {len(change.devices):,} of {durations.devices:,} devices "
        f"take {change.factor:g} times as long"
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
