"""The facts about a run that its algorithm may use, from the run's settings."""

from testbed.algorithms.interface import Conditions
from testbed.training.settings import Settings


def conditions(settings: Settings, number: int | None = None) -> Conditions:
    """Return the conditions of the run, as the planner, every driver and every half get them.

    Args:
        number: the device whose half gets them; None for the server's half, and for all in general.
    """
    return Conditions(
        settings.rate.alpha,
        settings.workers,
        settings.training.batch_size,
        settings.training.updates,
        (settings.devices if number is None else settings.device(number)).uplink,
        settings.timing.gradient_time,
        settings.rate,
        settings.timing.clock == "wall",
        settings.seed,
        settings.images,
        number,
    )
