"""``energy``: the joules that the devices of a run had used at some times, of all devices together.

Under the virtual clock there is a row for each evaluation. Under the wall clock there is one only for
the end of training, since neither processor times nor bytes are read at evaluations. Between two rows
energy is taken to grow in proportion to time.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from testbed.results.reading.journals import read_columns, whole


def joules_at(directory: Path, times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the joules that a run's devices had used at some times; NaN without a table.

    Raises:
        NoRunError: the table cannot be read.
    """
    table = read_columns(directory, "energy", ("time", "joules"))
    with whole(directory / "energy"):
        if not table.num_rows or not len(times):
            return np.full(len(times), np.nan)
        # A restored server's run reaches times once more, with equal energies.
        known, first = np.unique(table["time"].cast("float64").to_numpy(), return_index=True)
        joules = table["joules"].cast("float64").to_numpy()[first]
        found = np.interp(times, np.append(0.0, known), np.append(0.0, joules))
        return np.asarray(found, dtype=np.float64)
