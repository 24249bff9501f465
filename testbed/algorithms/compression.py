"""The worker's half of compressing algorithms: the selection and, optionally, error feedback.

The selection of the entries to send is that of the papers (SELECT_GRAD). The other entries are
forgotten, as in the papers, or kept (``testbed.algorithms.error_feedback``), as the options say. An
algorithm adds its server half and its own default scope.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from testbed.algorithms.asgd import WholeGradient
from testbed.algorithms.error_feedback import ErrorFeedback
from testbed.algorithms.interface import Conditions, Options
from testbed.algorithms.selection import Largest, kept
from testbed.algorithms.worker_half import WorkerHalf
from testbed.random_streams import stream
from testbed.updates import FloatVector, Layout, SparseUpdate

Scope: TypeAlias = Literal["model", "tensor"]

_PERCENTAGE = r"^[0-9]+(\.[0-9]+)? ?%$"


def _of_percentage(value: object) -> object:
    """Return the fraction that a text such as ``1%`` stands for; any other value as it is."""
    if isinstance(value, str) and re.match(_PERCENTAGE, value.strip()):
        return float(Fraction(value.strip().rstrip("% ")) / 100)
    return value


Ratio: TypeAlias = Annotated[
    float,
    Field(gt=0, le=1),
    BeforeValidator(
        _of_percentage,
        json_schema_input_type=Annotated[float, Field(gt=0, le=1)]
        | Annotated[str, Field(pattern=_PERCENTAGE, examples=["1%"])],
    ),
]
"""A compression ratio c: a fraction, or text such as ``1%``."""


def scopes(layout: Layout, scope: Scope) -> Sequence[slice]:
    """Return the parts of the flat vector in each of which a selection takes the largest entries."""
    return (slice(0, layout.total),) if scope == "model" else layout.slices


class SelectionOptions(Options):
    """The options of every algorithm whose workers may push a part of the gradient."""

    ratio: Ratio | None = Field(
        default=None,
        description="Compression ratio c: fraction of the gradient's entries that a worker pushes, "
        "the largest in magnitude. 1 pushes all of them. Default (null): whole gradients.",
    )
    error_feedback: bool = Field(
        default=False,
        description="Keep what was not pushed, and what the encoding rounded away, and add it to "
        "the next gradient (Stich et al. 2018). Default: forget it, as the papers do.",
    )
    error_decay: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Factor β on what was kept, at each gradient (memory decay: Xu et al. 2021, Wu "
        "et al. 2018); default (null): 1, all of it stays until pushed. Needs error_feedback.",
    )

    @field_validator("error_decay")
    @classmethod
    def _of_error_feedback(cls, value: float | None, info: ValidationInfo) -> float | None:
        return of_error_feedback(value, info)

    @property
    def pushes_whole_gradients(self) -> bool:
        """True if workers push each gradient as it is."""
        return self.ratio is None and not self.error_feedback


def of_error_feedback(value: float | None, info: ValidationInfo) -> float | None:
    """Return the value of an option that is only about error feedback, if there is some.

    Raises:
        ValueError: there is none.
    """
    # Where error_feedback itself is invalid there is nothing to compare with.
    if value is not None and not info.data.get("error_feedback", True):
        raise ValueError("needs error feedback: add `error_feedback: true` beside it")
    return value


class CompressionOptions(SelectionOptions):
    """The options of every algorithm whose workers push a part of the gradient."""

    ratio: Ratio = Field(
        default=0.01,
        description="Compression ratio c: fraction of the gradient's entries that a worker pushes, "
        "the largest in magnitude. 1 pushes all of them.",
    )
    momentum: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="Momentum correction with factor masking (DGC, Lin et al. 2018): the workers' "
        "momentum m; default (null): 0, none. Needs error_feedback.",
    )

    @field_validator("momentum")
    @classmethod
    def _momentum_of_error_feedback(cls, value: float | None, info: ValidationInfo) -> float | None:
        return of_error_feedback(value, info)


class LargestEntries(WorkerHalf):
    """SELECT_GRAD (Algorithm 1): keep the max(1, ⌊c·size⌋) largest entries of each part."""

    not_saved = frozenset({"_parts"})

    def __init__(self, layout: Layout, ratio: float, scope: Scope) -> None:
        self._parts = [
            (s, Largest(s.stop - s.start, kept(ratio, s.stop - s.start)))
            for s in scopes(layout, scope)
        ]

    def compress(self, gradient: FloatVector) -> SparseUpdate:
        parts = []
        for s, largest in self._parts:
            positions = largest.positions(gradient[s])
            if s.start:
                positions += s.start
            parts.append(positions)
        chosen = np.concatenate(parts)
        return SparseUpdate(chosen.astype(np.uint32), gradient.take(chosen))


class RandomEntries(WorkerHalf):
    """Keep max(1, ⌊c·size⌋) entries of each part, drawn anew for each gradient."""

    not_saved = frozenset({"_parts", "_key"})

    def __init__(self, layout: Layout, ratio: float, scope: Scope, conditions: Conditions) -> None:
        self._parts = [(s, kept(ratio, s.stop - s.start)) for s in scopes(layout, scope)]
        self._key = conditions.seed, "selection", conditions.device or 0
        self._drawn = 0

    def compress(self, gradient: FloatVector) -> SparseUpdate:
        drawing = stream(*self._key, self._drawn)
        self._drawn += 1
        chosen = np.concatenate(
            [
                s.start + drawing.choice(s.stop - s.start, count, replace=False, shuffle=False)
                for s, count in self._parts
            ]
        )
        chosen.sort()
        return SparseUpdate(chosen.astype(np.uint32), gradient.take(chosen))


def compressing_worker(
    options: SelectionOptions, layout: Layout, scope: Scope, selecting: WorkerHalf | None = None
) -> WorkerHalf:
    """Make one worker's half: the selection, wrapped in error feedback if the options ask for it.

    Args:
        selecting: takes the place of the selection of the largest entries.
    """
    selection: WorkerHalf = WholeGradient()
    if options.ratio is not None:
        selection = selecting or LargestEntries(layout, options.ratio, scope)
    if not options.error_feedback:
        return selection
    decay = 1.0 if options.error_decay is None else options.error_decay
    momentum = options.momentum if isinstance(options, CompressionOptions) else None
    return ErrorFeedback(selection, layout, momentum or 0.0, decay)
