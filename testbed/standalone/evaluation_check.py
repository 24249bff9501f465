"""The check of the evaluator's results, which arrive from another host as JSON."""

import math
from collections.abc import Mapping
from typing import TypeGuard

from testbed.messages.reports import VersionEvaluated
from testbed.standalone.messages import MessageError

LARGEST_LOSS = 2**53
"""The greatest loss that may be sent as an integer."""


def evaluation(version: object, results: Mapping[str, object], updates: int) -> VersionEvaluated:
    """Return the evaluator's result as a report.

    Args:
        results: ``accuracy``, None where there is none, ``loss`` and ``measured``.
        updates: the run's last version.

    Raises:
        MessageError: no evaluation has such a result.
    """
    if type(version) is not int or not 0 <= version <= updates:
        raise MessageError(f"an evaluation of a version that is not from 0 to {updates:,}")
    what = f"an evaluation of version {version:,} with"
    accuracy, loss, measured = (results.get(key) for key in ("accuracy", "loss", "measured"))
    # A comparison works for an integer of any size, and is false for a NaN.
    if "accuracy" in results and accuracy is None:
        accuracy = math.nan
    elif not _is_number(accuracy) or not 0 <= accuracy <= 100:
        raise MessageError(f"{what} an accuracy that is not from 0 to 100")
    # The loss of a diverged model is not finite; every such loss is reported as NaN.
    if not _is_number(loss) or (isinstance(loss, int) and abs(loss) > LARGEST_LOSS):
        raise MessageError(f"{what} a loss that is not a number")
    finite = float(loss) if math.isfinite(loss) else math.nan
    # No server of this kind is restored, so that it does not matter when it connected.
    if measured is not None and not isinstance(measured, float):
        raise MessageError(f"{what} a measured value that is not a number")
    return VersionEvaluated(version, accuracy, finite, connected=0.0, measured=measured)


def _is_number(value: object) -> TypeGuard[int | float]:
    """Return True if a value is a number, and not JSON's true or false."""
    return isinstance(value, int | float) and not isinstance(value, bool)
