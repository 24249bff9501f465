"""The gradients, bytes and time of a run, as ``testbed plan`` foretells them.

An update of a synchronous rule is made of several gradients, and of an asynchronous one of one; workers
that train locally push once for many. Bytes are those of one push of a gradient drawn at random; times
are bounds from below, as if nothing waited for a shared or failed link or for the slowest device. What
varies, or is among peers, is not foretold.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from testbed.algorithms import algorithm_named
from testbed.algorithms.interface import ServedAlgorithm
from testbed.algorithms.synchronous_sgd import SynchronousAlgorithm
from testbed.algorithms.worker_half import ONE_GRADIENT
from testbed.experiment.model_conflicts import layout_of
from testbed.number_text import as_bytes, as_duration, as_number
from testbed.planning.halves import first_push
from testbed.planning.images import ImageCounts
from testbed.planning.plan import Plan
from testbed.training import computation
from testbed.training.pushed_parts import PushedParts
from testbed.training.settings import Settings
from testbed.training.slices import slices_of
from testbed.training.times import Times
from testbed.updates import Layout


@dataclass(frozen=True, slots=True)
class Expected:
    """A run's expectations; None for what is not known before it.

    Attributes:
        gradients_per_update: of how many workers' gradients an update is made.
        pushes_per_update: of how many pushes.
        epochs: how often these gradients together go over the training images.
        payload_bytes: ingress of all updates, without pushes that come too late.
        drops: True if pushes may come too late, so that there are more bytes.
        least_seconds: by the run's clock, of all that devices do one after the other.
    """

    gradients_per_update: int | None
    pushes_per_update: int | None
    epochs: float | None
    payload_bytes: int | None
    drops: bool
    least_seconds: float | None

    @property
    def words(self) -> str:
        """The end of the line about the run."""
        said = []
        if self.gradients_per_update is not None:
            of = f"of {as_number(self.gradients_per_update, 'gradient')} each"
            said.append(of if self.epochs is None else f"{of}, {self.epochs:.3g} epochs")
        elif self.pushes_per_update is not None:
            said.append(f"of {as_number(self.pushes_per_update, 'model')} each")
        if self.payload_bytes is not None:
            words = "at least" if self.drops else "about"
            said.append(f"{words} {as_bytes(self.payload_bytes)} of payload")
        if self.least_seconds:
            said.append(f"at least {as_duration(self.least_seconds)}")
        return ", ".join(said)


def expected(plan: Plan, shared: ImageCounts | None) -> Expected:
    """Return what is expected of a run.

    Args:
        shared: the training images of each device, if the dataset is here.
    """
    settings, (options,) = plan.settings, plan.spec.algorithms
    if shared is not None:
        settings = replace(settings, images=shared.images.tolist())
    algorithm, run = algorithm_named(options.name), settings.conditions()
    if not plan.served:
        return Expected(None, None, None, None, False, None)
    training = settings.training
    gradients = algorithm.gradients_per_update(options, run)
    epochs = None
    if gradients is not None and shared is not None:
        drawn = training.updates * gradients * training.batch_size
        epochs = drawn / int(shared.images.sum())
    pushes = None
    if issubclass(algorithm, ServedAlgorithm) and not settings.network.aggregator_of:
        pushes = algorithm.pushes_per_update(options, run)
    if pushes is None:
        return Expected(gradients, None, epochs, None, False, None)
    pushed, of_all = _pushed_bytes(settings, layout_of(plan.spec)), training.updates * pushes
    at_once = gradients is not None and computation.legs(settings, 0) == ONE_GRADIENT
    chosen = pushes > 1 or issubclass(algorithm, SynchronousAlgorithm)
    return Expected(
        gradients,
        pushes,
        epochs,
        of_all * sum(pushed),
        at_once and chosen and pushes < settings.workers,
        _least_seconds(plan, of_all, pushed) if at_once else None,
    )


def _pushed_bytes(settings: Settings, layout: Layout) -> list[int]:
    """Return the bytes of a first push to each server, of a gradient drawn at random."""
    gradient = np.random.default_rng(0).standard_normal(layout.total, np.float32)
    parts = PushedParts.of_run(settings, layout)
    return [size for size, _ in parts.measure(first_push(settings, layout, gradient))]


def _least_seconds(plan: Plan, gradients: int, pushed: Sequence[int]) -> float:
    """Return the time of so many gradients if each device makes the next when it is answered.

    With a send queue it makes the next meanwhile. What a worker and the server on its machine send each
    other takes no time. A push to each server has the bytes ``pushed``.
    """
    settings = plan.settings
    together = max if computation.overlaps(settings) else sum
    layouts = [one.layout for one in slices_of(settings, layout_of(plan.spec))]
    pulled = [4 * one.total if settings.pulls == "full" else 0 for one in layouts]
    times, local = Times.of(settings), range(settings.network.co_located)
    each_second = 0.0
    for number in range(settings.workers):
        device, own = settings.device(number), times.of_device(number)
        away = device.delay + device.down_delay
        away += sum(
            8 * (sum(sizes) - (sizes[number] if number in local else 0)) / rate
            for sizes, rate in ((pushed, device.uplink), (pulled, device.downlink))
            if rate
        )
        cycle = together((own.compute.least_mean + own.waiting.least_mean, away))
        if not cycle:
            return 0.0
        each_second += 1 / cycle
    return gradients / each_second
