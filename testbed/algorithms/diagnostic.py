"""Numbers of its own that an algorithm reports with each update, e.g. its k or its mean gap.

An algorithm declares them, and its server's half returns their values after each update. The run
directory has them in ``diagnostics.parquet``, and their meaning in the manifest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.errors import RunError


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """The declaration of one such number.

    Attributes:
        name: what it is called in the run directory, tables and metrics, e.g. ``gap``.
        meaning: what it is, in one sentence that names the unit.
        estimates: the exact value that it estimates at the version before the update: one of
            ``training_loss``, ``gradient_norm`` and ``gradient_variance``, which figures show beside it
            where the simulator has computed it; empty: none.
    """

    name: str
    meaning: str
    estimates: str = ""


def diagnosed(values: Mapping[str, float], names: Sequence[str]) -> list[float]:
    """Return what a half's ``diagnose`` has returned, in the order of the declared names.

    Raises:
        RunError: it has no number for one of them.
    """
    found = []
    for name in names:
        try:
            found.append(float(values[name]))
        except (KeyError, TypeError, ValueError):
            raise RunError(
                f"the algorithm's diagnostics declare {name}, for which diagnose() returned no number: "
                f"{values!r:.200}"
            ) from None
    return found
