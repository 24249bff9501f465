"""How a run has ended: the words of ``ended`` in its files, and what follows from each.

Everything that asks how a run ended asks here: whether it is complete (``testbed resume`` leaves it as
it is), whether its result is that of its file (a sweep keeps it), and the exit status of the command
that carried it out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Ended: TypeAlias = Literal["completed", "diverged", "disturbed", "interrupted", "failed"]


@dataclass(frozen=True, slots=True)
class EndState:
    """A way in which a run ends.

    Attributes:
        meaning: what it says of the run, in words.
        complete: True if the run has made all its updates: it is not resumed.
        kept: True if the result is the one that the run's file defines: what identifies runs by their
            file (a sweep, a paper's reproduction) does not make it again.
        status: the exit status of a command; an interruption by a signal has that signal's.
    """

    meaning: str
    complete: bool
    kept: bool
    status: int


STATES: Mapping[Ended, EndState] = MappingProxyType(
    {
        "completed": EndState("it has made all its updates", complete=True, kept=True, status=0),
        "diverged": EndState(
            "it has made all its updates, and its parameters or their loss are not finite numbers",
            complete=True,
            kept=True,
            status=3,
        ),
        "disturbed": EndState(
            "it has made all its updates under the virtual clock, and lost a device that its file does "
            "not lose: the result is not the one that the file defines",
            complete=True,
            kept=False,
            status=4,
        ),
        "failed": EndState("it could not go on", complete=False, kept=False, status=1),
        "interrupted": EndState(
            "a signal or a kill has stopped it", complete=False, kept=False, status=1
        ),
    }
)
"""By the word, the best end first."""


SummaryContent: TypeAlias = dict[str, Any]
"""The content of a run's ``summary.json``, whose keys docs/running.md lists.

Each part is added by what measures it; which parts there are depends on the run.
"""


def is_complete(ended: str) -> bool:
    """Return True if a run that has ended so, or is ``running``, has made all its updates."""
    return ended in STATES and STATES[ended].complete  # type: ignore[index]


def is_kept(ended: str) -> bool:
    """Return True if a run that has ended so, or is ``running``, has the result of its file."""
    return ended in STATES and STATES[ended].kept  # type: ignore[index]


def worst(summaries: Iterable[SummaryContent]) -> SummaryContent | None:
    """Return the first of the summaries with the worst end; None if all runs are ``completed``."""
    order = list(STATES)
    found = max(summaries, key=lambda one: order.index(one["ended"]), default=None)
    return None if found is None or found["ended"] == "completed" else found


def diverged_at(
    iterations: "Sequence[int] | npt.NDArray[np.int64]",
    losses: "Sequence[float] | npt.NDArray[np.float64]",
) -> int | None:
    """Return the update of the first evaluation from which on no loss is finite.

    Args:
        iterations, losses: of each evaluation, in order.

    Returns:
        None if the last loss is finite, or there is none.
    """
    finite = (place for place in reversed(range(len(losses))) if math.isfinite(losses[place]))
    first = next(finite, -1) + 1
    return int(iterations[first]) if first < len(losses) else None


def not_finite_from(iteration: int) -> str:
    """Return the reason of a run whose losses are not finite from an update on."""
    return f"the loss is not a finite number from update {iteration:,} on"
