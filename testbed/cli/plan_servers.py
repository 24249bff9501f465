"""The servers' shares of the parameters in ``testbed plan``."""

from typing import Any

from testbed.experiment.model_conflicts import layout_of
from testbed.planning.plan import Plan
from testbed.quantities import as_bytes, as_number
from testbed.training.slices import Slice, slices_of


def shares(plan: Plan) -> list[str]:
    """Return what each of several servers holds, in words."""
    allocation = plan.settings.training.allocation
    return [_told(one, allocation) for one in slices_of(plan.settings, layout_of(plan.spec))]


def _told(one: Slice, allocation: str) -> str:
    held = f"{as_number(one.size, 'parameter')}, {as_bytes(4 * one.size)}"
    if allocation == "ranges":
        return held
    return f"{held}, of {as_number(len(one.layout.names), 'tensor')}"


def describe(plan: Plan) -> list[str]:
    """Return a line for each of several servers, where no line about its device tells its share."""
    if len(plan.servers) < 2:
        return []
    return [f"  {name:<14}{held}" for name, held in zip(plan.servers, shares(plan), strict=True)]


def records(plan: Plan) -> list[dict[str, Any]]:
    """Return each server's share as JSON values: float32, with the names of whole or cut tensors."""
    if not plan.served:
        return []
    return [
        {
            "name": name,
            "parameters": one.size,
            "bytes": 4 * one.size,
            "tensors": list(one.layout.names),
        }
        for name, one in zip(
            plan.servers, slices_of(plan.settings, layout_of(plan.spec)), strict=True
        )
    ]
