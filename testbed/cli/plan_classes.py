"""The device classes in ``testbed plan``: a row for each, with the values of its devices."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from testbed.cli.plan_links import cells
from testbed.experiment.sections.device_classes import DeviceClassSpec
from testbed.results.tables.table import Table, plain_text
from testbed.units import format_size

if TYPE_CHECKING:
    from testbed.experiment.spec import Spec
    from testbed.planning.plan import Plan

_NO_VALUE = "-"
_LIMITS: dict[str, Callable[[Any], str]] = {
    "cpus": lambda value: f"{value:g}",
    "memory": format_size,
}
"""The values of ``devices`` that a class may replace, and how each is written."""


def distribution_text(section: dict[str, Any]) -> str:
    """Return a distribution and its options, as the experiment file writes them."""
    options = [
        f"{key} {value}"
        for key, value in section.items()
        if key not in ("distribution", "classes", "changes")
    ]
    return ", ".join([section["distribution"], *options])


def describe(plan: "Plan", images: Sequence[str] = ()) -> list[str]:
    """Return the lines of the table, headings first; no lines without classes.

    A column in which no class has a value is left out.

    Args:
        plan: the plan of one of the runs.
        images: the number of images per worker of each class, as text, if known.
    """
    section = plan.spec.devices
    if not section.classes:
        return []
    rows = [_row(plan.spec, device_class) for device_class in section.classes]
    for row, size in zip(rows, section.class_sizes, strict=True):
        row["devices"] = f"{size:,}"
    for row, of_class in zip(rows, images, strict=False):
        row["images"] = of_class
    kept = [key for key in rows[0] if any(row[key] != _NO_VALUE for row in rows)]
    return plain_text(Table(kept, [[row[key] for key in kept] for row in rows])).splitlines()


def records(plan: "Plan") -> list[dict[str, Any]]:
    """Return the classes for ``--json``, in base units, with their devices' numbers."""
    devices, settings = plan.spec.devices, plan.settings
    return [
        {
            "name": device_class.name,
            "compute": compute.model_dump(),
            "waiting": waiting.model_dump(),
            **asdict(own),
            **{key: device_class.of(key, getattr(devices, key)) for key in ("cpus", "memory")},
            "devices": [number for number, index in enumerate(settings.class_of) if index == i],
        }
        for i, (device_class, own) in enumerate(zip(devices.classes, settings.classes, strict=True))
        for compute, waiting in [plan.spec.times_of(device_class)]
    ]


def _row(spec: "Spec", device_class: DeviceClassSpec) -> dict[str, str]:
    row = {"class": device_class.name, "devices": ""}
    for times, heading in zip(spec.times_of(device_class), ("computing", "waiting"), strict=True):
        row[heading] = (
            distribution_text(times.model_dump(mode="json")) if times.takes_time else _NO_VALUE
        )
    row |= cells(spec.link_of(device_class))
    for key, write in _LIMITS.items():
        value = device_class.of(key, getattr(spec.devices, key))
        row[key] = write(value) if value else _NO_VALUE
    row["images"] = _NO_VALUE
    return row
