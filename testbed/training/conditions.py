"""The facts about a run that its algorithm may use, from the run's settings."""

from testbed.algorithms.interface import Conditions
from testbed.algorithms.learning_rate import ConstantRate, LearningRate, RateSchedule
from testbed.training.settings import Settings


def conditions(settings: Settings, number: int | None = None) -> Conditions:
    """Return the conditions of the run, as the planner, every driver and every half get them.

    Args:
        number: the device whose half gets them; None for the server's half, and for all in general.
    """
    return Conditions(
        settings.training.learning_rate,
        settings.workers,
        settings.training.batch_size,
        settings.training.updates,
        (settings.devices if number is None else settings.device(number)).uplink,
        settings.timing.gradient_time,
        rate(settings),
        settings.timing.clock == "wall",
        settings.seed,
        settings.images,
        number,
    )


def rate(settings: Settings) -> LearningRate:
    """Return the run's learning rate at each version."""
    training = settings.training
    if training.schedule is None:
        return ConstantRate(training.learning_rate)
    return RateSchedule(training.learning_rate, **training.schedule)
