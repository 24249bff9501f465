"""Losses: what a gradient is taken of, and what an evaluation measures.

``classification``
    The mean cross-entropy of logits, (b, classes), and labels, (b,).
``next-token``
    The mean cross-entropy over all positions, of logits (b, positions, tokens) and tokens (b,
    positions).
    An evaluation also measures the perplexity, e to the mean cross-entropy.
A function of one's own
    ``loss(outputs, targets, …)`` returns the mean over a mini-batch, a tensor of one value.

An evaluation measures the loss; the accuracy, where targets are whole numbers, one for each row of
outputs; and one more quantity, the perplexity or ``loss``'s own measure: a function like a loss, which
returns the mean over some examples.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from testbed.errors import SpecError
from testbed.learning.inputs import Inputs
from testbed.plugins.names import find

ENTRY_POINTS = "testbed.losses"
"""The group of entry points by which installed packages give their losses and measures short names."""
CLASSIFICATION, NEXT_TOKEN = "classification", "next-token"
PERPLEXITY = "perplexity"

Function: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Returns the mean over a mini-batch, of outputs and targets."""


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy over all labels or positions."""
    if outputs.dim() > 2:
        outputs, targets = outputs.flatten(0, -2), targets.flatten()
    return functional.cross_entropy(outputs, targets)


BUILT_IN: dict[str, Function] = {CLASSIFICATION: cross_entropy, NEXT_TOKEN: cross_entropy}


@dataclass(frozen=True, slots=True)
class Measure:
    """A quantity that evaluations measure besides the loss and the accuracy.

    Attributes:
        name: the name of its column, in lower case.
        unit: a word or a sign; empty for a pure number.
        better: whether a better model has a higher or a lower value.
        function: returns its mean over some examples; None: it is the perplexity.
    """

    name: str
    unit: str = ""
    better: Literal["higher", "lower"] = "lower"
    function: Function | None = None


class Evaluated(NamedTuple):
    """The results of an evaluation.

    Attributes:
        accuracy: the percentage of targets that have the greatest output; NaN if there are none such.
        loss: the mean over all examples.
        measured: of the run's measure; None if it has none.
    """

    accuracy: float
    loss: float
    measured: float | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """A run's loss.

    Attributes:
        name: as in the experiment file.
        mean: its function.
        measure: what evaluations measure besides it and the accuracy, if anything.
    """

    name: str = CLASSIFICATION
    mean: Function = field(default=cross_entropy)
    measure: Measure | None = None

    @property
    def is_classification(self) -> bool:
        """True for the loss that the fast path computes."""
        return self.name == CLASSIFICATION

    def total(self) -> "Totals":
        """Return the totals of a new evaluation."""
        return Totals(self)


CROSS_ENTROPY = Loss()
"""That of images and their labels."""


class Totals:
    """The sums of an evaluation, over the mini-batches that it is made of."""

    def __init__(self, loss: Loss) -> None:
        self._loss = loss
        self._examples = self._targets = self._right = 0
        self._sum = self._measured = 0.0

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Add the outputs for some examples, and their targets."""
        count, measure = len(outputs), self._loss.measure
        self._examples += count
        if outputs.shape[:-1] == targets.shape and not targets.is_floating_point():
            self._targets += targets.numel()
            self._right += int((outputs.argmax(-1) == targets).sum())
        if self._loss.is_classification:
            self._sum += float(functional.cross_entropy(outputs, targets, reduction="sum"))
        else:
            self._sum += count * float(self._loss.mean(outputs, targets))
        if measure is not None and measure.function is not None:
            self._measured += count * float(measure.function(outputs, targets))

    def result(self) -> Evaluated:
        """Return the means over all that was added."""
        accuracy = 100 * self._right / self._targets if self._targets else math.nan
        loss, measure = self._sum / self._examples, self._loss.measure
        if measure is None:
            return Evaluated(accuracy, loss)
        if measure.function is not None:
            return Evaluated(accuracy, loss, self._measured / self._examples)
        return Evaluated(accuracy, loss, math.exp(loss) if loss < 700 else loss + math.inf)


def loss_named(
    name: str | None,
    options: Mapping[str, object],
    measure: Measure | None,
    inputs: Inputs,
) -> Loss:
    """Return a run's loss.

    Args:
        name: as in the experiment file; None: ``next-token`` of tokens, else ``classification``.
        options: further arguments of a function of one's own.
        measure: what evaluations measure besides loss and accuracy, if anything.
        inputs: the examples.

    Raises:
        SpecError: there is no such function, its module cannot be imported, or the loss is for others.
    """
    chosen = name or (NEXT_TOKEN if inputs.tokens else CLASSIFICATION)
    if chosen in BUILT_IN and inputs.tokens is not (chosen == NEXT_TOKEN):
        other = NEXT_TOKEN if inputs.tokens else CLASSIFICATION
        raise SpecError(f"the loss {chosen} is not for {inputs}: use {other}, or leave it out")
    return Loss(chosen, function_named(chosen, options), measure)


def function_named(name: str, options: Mapping[str, object]) -> Function:
    """Return a loss or a measure, with its options.

    Raises:
        SpecError: there is none, its module cannot be imported, or it is no function.
    """
    found = find(name, BUILT_IN, ENTRY_POINTS)
    if not callable(found):
        raise SpecError(f"'{name}' is no function of outputs and targets that returns a mean")
    return partial(found, **options) if options else found


def single(value: Any) -> Tensor:
    """Return the loss of a mini-batch, as a function returned it.

    Raises:
        SpecError: it is no tensor of one value.
    """
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        what = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
        raise SpecError(
            f"the loss of a mini-batch is {what} and not a tensor of one value: its mean"
        )
    return value.reshape(())
