"""The check of the evaluator's results, which arrive from another host as JSON."""

import math
from typing import TypeGuard

from testbed.messages.reports import VersionEvaluated
from testbed.standalone.messages import MessageError

LARGEST_LOSS = 2**53
"""The greatest loss that may be sent as an integer."""


def evaluation(version: object, accuracy: object, loss: object, updates: int) -> VersionEvaluated:
    """Return the evaluator's result as a report.

    Args:
        updates: the run's last version.

    Raises:
        MessageError: no evaluation has such a result.
    """
    if type(version) is not int or not 0 <= version <= updates:
        raise MessageError(f"an evaluation of a version that is not from 0 to {updates:,}")
    what = f"an evaluation of version {version:,} with"
    # A comparison works for an integer of any size, and is false for a NaN.
    if not _is_number(accuracy) or not 0 <= accuracy <= 100:
        raise MessageError(f"{what} an accuracy that is not from 0 to 100")
    # The loss of a diverged model is not finite; every such loss is reported as NaN.
    if not _is_number(loss) or (isinstance(loss, int) and abs(loss) > LARGEST_LOSS):
        raise MessageError(f"{what} a loss that is not a number")
    finite = float(loss) if math.isfinite(loss) else math.nan
    # No server of this kind is restored, so that it does not matter when it connected.
    return VersionEvaluated(version, accuracy, finite, connected=0.0)


def _is_number(value: object) -> TypeGuard[int | float]:
    """Return True if a value is a number, and not JSON's true or false."""
    return isinstance(value, int | float) and not isinstance(value, bool)
