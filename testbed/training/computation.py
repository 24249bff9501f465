"""The computation of a worker, under any driver: mini-batches, local steps, selection, encoding."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.algorithms import algorithm_named
from testbed.algorithms.aggregator_half import AggregatorHalf
from testbed.algorithms.interface import Algorithm, AsynchronousOptions, Conditions, Options
from testbed.algorithms.learning_rate import RateSchedule
from testbed.algorithms.peer_half import PeerHalf
from testbed.algorithms.roles import Population, Role
from testbed.algorithms.server_half import Protocol, ServerHalf
from testbed.algorithms.worker_half import ONE_GRADIENT, Leg, WorkerHalf, most_before_asking
from testbed.checkpoints.stateful import State
from testbed.errors import RunError
from testbed.learning.data import datasets, partitions
from testbed.learning.data.augmentation import NONE, Augmentation
from testbed.learning.data.batches import Batches, Draw
from testbed.learning.data.datasets import Dataset
from testbed.learning.description import describe
from testbed.learning.inputs import Inputs
from testbed.learning.learner import Learner
from testbed.learning.losses import Loss, Measure, function_named, loss_named
from testbed.learning.models import Model, initialise, model_named
from testbed.random_streams import stream
from testbed.training.objective import PLAIN, Objective
from testbed.training.own_buffers import KeptBuffers
from testbed.training.pushed_parts import Encoded, PushedParts
from testbed.training.settings import Settings
from testbed.training.shared_buffers import SharedBuffers
from testbed.updates import FloatVector, Layout, Update, checked


def model(settings: Settings) -> Model:
    return model_named(settings.spec.model.name, settings.spec.model.options)


def loss(settings: Settings, inputs: Inputs) -> Loss:
    """Return the run's loss, and what its evaluations measure."""
    measured, own, loss = None, settings.spec.evaluation.measure, settings.spec.loss
    if (one := settings.measure) is not None:
        function = function_named(own.name, own.options) if own is not None else None
        measured = Measure(one.name, one.unit, one.better, function)
    name, options = (None, {}) if loss is None else (loss.name, loss.options)
    return loss_named(name, options, measured, inputs)


def learner(settings: Settings, inputs: Inputs) -> Learner:
    """Make a learner of the run's model, for the dataset's images; its parameters are all zero."""
    return Learner(
        model(settings),
        settings.training.batch_size,
        inputs=inputs,
        buffers=settings.spec.model.buffers,
        loss=loss(settings, inputs),
    )


def initial(settings: Settings, inputs: Inputs) -> FloatVector:
    """Return the run's initial parameters, float32, (|Θ|,)."""
    of, generator = settings.spec.model, stream(settings.seed, "initial")
    return initialise(model(settings), of.initialisation, generator, inputs, of.buffers)


def parts(settings: Settings, labels: npt.NDArray[np.integer[Any]]) -> list[npt.NDArray[np.int64]]:
    """Return the training images of every device that computes: indices, by the devices' numbers.

    Raises:
        SpecError: there are not enough images.
    """
    devices, least, seed = computing(settings), settings.training.batch_size, settings.seed
    images = settings.spec.dataset.train_images
    column = partial(datasets.training_column, settings.dataset, images, seed)
    return partitions.parts(settings.partition, labels, devices, seed, least, column=column)


def with_images(settings: Settings, parts: Sequence[npt.NDArray[np.int64]]) -> Settings:
    """Return a run's settings with the number of each device's training images."""
    return replace(settings, images=[len(one) for one in parts])


def may_draw(settings: Settings, inputs: Inputs) -> bool:
    """Return True if a layer of the run's model may draw random numbers."""
    loss = settings.spec.loss
    return describe(model(settings), inputs, None if loss is None else loss.name).may_draw


def changes(settings: Settings) -> Augmentation:
    """Return how training images are changed at random."""
    section = settings.training.augmentation
    return NONE if section is None else Augmentation(section.crop, section.flip)


def batches(
    settings: Settings,
    dataset: Dataset,
    shard: npt.NDArray[np.int64],
    number: int,
    *,
    memory: Batches | None = None,
    incarnation: int = 0,
) -> Batches:
    """Make the mini-batches of device ``number``, from its shard of the training images.

    Args:
        memory: gather into the arrays of these mini-batches.
        incarnation: how often the device has been killed and come back.
    """

    def of(purpose: str) -> np.random.Generator:
        return stream(settings.seed, purpose, number, incarnation)

    augmentation = changes(settings)
    draws = may_draw(settings, dataset.inputs)
    return Batches(
        *(dataset, shard, settings.training.batch_size, of("batches"), memory),
        layers=of("layers") if draws else None,
        augmentation=augmentation,
        moves=of("augmentation") if augmentation else None,
        dealt_by=settings.seed if settings.spec.partition.kind == "stream" else None,
    )


def conversations(
    algorithm: type[Algorithm], options: Options, run: Conditions, population: Population
) -> list[tuple[Role, Role]]:
    """Return the pairs of roles that talk to each other, each once, in the algorithm's order.

    Of two peers the one with the lower number is the first.
    """
    found: dict[tuple[Role, Role], None] = {}
    for one, other in algorithm.conversations(options, run, population):
        assert one != other, f"{one.part} {one.index} is to talk to itself"
        is_other_first = one.part == other.part == "peer" and other.index < one.index
        found[(other, one) if is_other_first else (one, other)] = None
    return list(found)


def _algorithm(settings: Settings) -> type[Algorithm]:
    return algorithm_named(settings.algorithm.name)


def import_modules(settings: Settings) -> None:
    """Import the modules that the algorithm's halves import when they first need them."""
    for name in _algorithm(settings).imports:
        importlib.import_module(name)


def server_half(settings: Settings, layout: Layout, parameters: FloatVector) -> ServerHalf:
    """Make the server's half of the run's algorithm; it takes ``parameters`` over.

    Raises:
        RunError: it speaks another protocol than its algorithm says that workers do.
    """
    algorithm, options = _algorithm(settings), settings.algorithm
    half = algorithm.server(options, layout, parameters, settings.conditions())
    if half.protocol != algorithm.protocol(options):
        raise RunError(
            f"{type(half).__name__}.protocol is '{half.protocol}', and {algorithm.__name__}.protocol() "
            f"returns '{algorithm.protocol(options)}', by which workers get parameters: let them agree"
        )
    if layout.buffers and isinstance(settings.rate, RateSchedule):
        half.fit = SharedBuffers(layout.parameters, settings.rate, settings.rate.alpha).fit
    return half


def aggregator_half(settings: Settings, layout: Layout, index: int) -> AggregatorHalf:
    """Make the half of an aggregator, by its index as a server; it has no parameters yet."""
    devices = len(settings.callers(index))
    memory = np.zeros(layout.total, np.float32)
    return _algorithm(settings).aggregator(
        settings.algorithm, layout, memory, devices, settings.conditions()
    )


def worker_half(settings: Settings, layout: Layout, number: int) -> WorkerHalf:
    return _algorithm(settings).worker(settings.algorithm, layout, settings.conditions(number))


def protocol(settings: Settings) -> Protocol:
    return _algorithm(settings).protocol(settings.algorithm)


def overlaps(settings: Settings) -> bool:
    """Return True if a worker computes while its last push is on its way."""
    options = settings.algorithm
    return isinstance(options, AsynchronousOptions) and options.overlaps


def legs(settings: Settings, number: int) -> Sequence[Leg]:
    """Return what a worker, or an aggregator by its number as one, does from message to message."""
    return _algorithm(settings).legs(settings.algorithm, settings.conditions(number))


def trains_locally(settings: Settings) -> bool:
    """Return True if the run's workers train on copies of the parameters."""
    return _algorithm(settings).trains_locally(settings.algorithm)


def gradients_per_update(settings: Settings) -> int:
    """Return the gradients of an update, or the fewest of them if their number varies."""
    return _algorithm(settings).gradients_per_update(settings.algorithm, settings.conditions()) or 1


def peer_half(
    settings: Settings, layout: Layout, parameters: FloatVector, number: int, version: int = 0
) -> PeerHalf:
    """Make a peer's half of the run's algorithm.

    Args:
        version: theirs; greater than 0 if the peer was killed, and goes on from a checkpoint.
    """
    half = _algorithm(settings).peer(
        settings.algorithm, layout, parameters, number, settings.conditions(number)
    )
    half.version = version
    return half


def diagnostics(settings: Settings) -> list[str]:
    """Return the names of the numbers that the algorithm reports with each update."""
    return [one.name for one in _algorithm(settings).diagnostics]


def neighbours(settings: Settings) -> list[list[int]]:
    """Return the peers that each peer talks to, in order, by the peers' numbers."""
    population = Population(settings.workers, settings.servers, settings.network.aggregator_of)
    run, options = settings.conditions(), settings.algorithm
    pairs = conversations(_algorithm(settings), options, run, population)
    found: list[set[int]] = [set() for _ in range(settings.workers)]
    for one, other in pairs:
        found[one.index].add(other.index)
        found[other.index].add(one.index)
    return [sorted(others) for others in found]


def computing(settings: Settings) -> int:
    """Return the number of the run's workers or peers that compute gradients."""
    return _algorithm(settings).computing(settings.algorithm, settings.conditions())


@dataclass(frozen=True, slots=True)
class Drawn:
    """The mini-batches that a worker has drawn for one leg, and how it begins.

    Attributes:
        batches: the mini-batch of each gradient.
        goes_on: True if it begins at the worker's own copy of the parameters, as the leg before it did
            not ask.
    """

    batches: Sequence[Draw]
    leg: Leg = ONE_GRADIENT[0]
    goes_on: bool = False


class Computation:
    """One worker's data, its half of the algorithm and the encoding of what it pushes."""

    def __init__(
        self,
        half: WorkerHalf,
        batches: Batches,
        parts: PushedParts,
        objective: Objective = PLAIN,
        legs: Sequence[Leg] = ONE_GRADIENT,
    ) -> None:
        self.half = half
        self._legs, self._most = legs, most_before_asking(legs, lambda leg: leg.gradients)
        self._batches = batches
        self._objective = objective
        self._parts = parts
        self._beginning = batches.position
        self._buffers = KeptBuffers()
        # The legs drawn so far, and the gradients of them since the last leg that asked.
        self._drawn = self._since = 0
        # The worker's copy of the parameters, where it goes on without asking.
        self._own: FloatVector | None = None

    def draw_past(self, computations: int) -> None:
        """Move to the point in the draws after the first ``computations`` computations."""
        self._batches.reposition(self._beginning)
        self._drawn = self._since = 0
        for _ in range(computations):
            self.draw()

    def state(self) -> State:
        drawn = {"drawn": self._drawn, "since": self._since}
        return {"batches": self._batches.position, **drawn, **self.kept()}

    def restore(self, state: State) -> None:
        self._batches.reposition(state["batches"])
        self._drawn, self._since = state["drawn"], state["since"]
        self.restore_kept(state)

    def kept(self) -> State:
        """Return the part of the state that gradients and selections change, and draws do not."""
        return {"half": self.half.state(), "own": self._own, **self._buffers.state()}

    @property
    def keeps(self) -> bool:
        """True if there is something in what ``kept`` returns."""
        return bool(self.half.state() or self._own is not None or self._buffers.state())

    def restore_kept(self, state: State) -> None:
        """Go on from what ``kept`` returned, or from a whole state."""
        self.half.restore(state["half"])
        self._own = state["own"]
        self._buffers.restore(state)

    def ask(self) -> None:
        """Go back to the first leg, as the worker asks for parameters over a new connection."""
        self._drawn = self._since = 0

    @property
    def leg(self) -> Leg:
        return self._legs[self._drawn % len(self._legs)]

    @property
    def goes_on(self) -> bool:
        """True if the next leg begins at the worker's own copy of the parameters."""
        return self._since > 0

    def draw(self, dealt: int = 0) -> Drawn:
        """Draw the mini-batches of the next leg, one for each gradient.

        Args:
            dealt: the number, in the run's stream of mini-batches, of those that the worker computes on
                until it asks again, if there is a stream.
        """
        leg, since = self.leg, self._since
        first = dealt * self._most + since
        drawn = [self._batches.draw(first + step) for step in range(leg.gradients)]
        self._drawn += 1
        self._since = 0 if leg.asks else since + leg.gradients
        return Drawn(drawn, leg, goes_on=since > 0)

    def gradient(self, learner: Learner, drawn: Drawn, version: int) -> tuple[FloatVector, float]:
        """Compute at the learner's parameters, which local steps change; return gradient and loss.

        A leg that goes on is computed at the worker's own copy, which the learner's parameters become.

        The gradient is the learner's own memory.

        Args:
            version: the base version; of several servers' the lowest.
        """
        leg, half, parameters = drawn.leg, self.half, learner.parameters
        if drawn.goes_on:
            assert self._own is not None
            np.copyto(parameters, self._own)
        self._buffers.put(learner)
        for step, one in enumerate(drawn.batches[:-1]):
            gradient, _ = self._objective.gradient(learner, self._batches, one)
            half.local(step, parameters, gradient, version)
        gradient, loss = self._objective.gradient(learner, self._batches, drawn.batches[-1])
        self._buffers.take(learner)
        if not leg.pushes:
            self._buffers.commit()
            half.local(leg.gradients - 1, parameters, gradient, version)
        elif not leg.asks:
            half.go_on(parameters, gradient, version)
        self._own = None if leg.asks else parameters.copy()
        return gradient, loss

    def encode(self, gradient: FloatVector) -> list[Encoded]:
        """Select from a gradient what is to be pushed, and encode each server's part of it."""
        update = self._selected(gradient)
        parts = self._parts.encode(update)
        self._tell_what_was_lost(update, [part.received for part in parts])
        return parts

    def measure(self, gradient: FloatVector) -> list[tuple[int, Update]]:
        """Do the same without encoding; return each part's bytes, and it as its server will read it."""
        update = self._selected(gradient)
        parts = self._parts.measure(update)
        self._tell_what_was_lost(update, [part for _, part in parts])
        return parts

    def _selected(self, gradient: FloatVector) -> Update:
        """Select what is to be pushed; what the computation has left on the device stays."""
        self._buffers.commit()
        return checked(self.half.compress(gradient), len(gradient), self.half)

    def _tell_what_was_lost(self, update: Update, received: Sequence[Update]) -> None:
        if self._parts.lossy:
            self.half.lost(update, self._parts.received(received))
