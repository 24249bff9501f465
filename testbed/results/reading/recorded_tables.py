"""The tables of a run directory that are no journals: of its devices, its links, images and energy."""

from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, TypeAdapter

from testbed.results.reading.journals import read_columns, read_parquet, whole
from testbed.run_tables import DeviceUtilisation, LinkBytes

T = TypeVar("T")
_UTILISATION = "utilisation.parquet"
_COLUMNS = [one.name for one in fields(DeviceUtilisation)]
_NEWER = _COLUMNS[_COLUMNS.index("idle_watts") :]
"""The columns that tables of earlier versions lack."""
_MOST = 10_000_000
"""The most counts, of devices times labels, that are read."""


def _rows(table: Any, kind: type[T]) -> tuple[T, ...]:
    finite = ConfigDict(allow_inf_nan=False)
    adapter: TypeAdapter[list[T]] = TypeAdapter(list[kind], config=finite)  # type: ignore[valid-type]
    return tuple(adapter.validate_python(table.to_pylist()))


def read_utilisation_table(directory: Path) -> Any:
    """Return the table of a run's devices as a ``pyarrow.Table``; None if the run left none.

    Raises:
        NoRunError: it cannot be read, or lacks a column.
    """
    path = directory / _UTILISATION
    try:
        with whole(path):
            table = read_parquet(path)
            return table.select([n for n in _COLUMNS if n not in _NEWER or n in table.column_names])
    except FileNotFoundError:
        return None


def read_utilisation(directory: Path) -> tuple[DeviceUtilisation, ...]:
    """Read the rows of a run's devices; an older run, or one that was killed, has none.

    Raises:
        NoRunError: the table cannot be read, or lacks a column.
    """
    table = read_utilisation_table(directory)
    if table is None:
        return ()
    with whole(directory / _UTILISATION):
        return _rows(table, DeviceUtilisation)


def read_over_links(directory: Path) -> tuple[LinkBytes, ...]:
    """Read the rows of a run's links; an older run, or one that ended early, has none.

    Raises:
        NoRunError: the table cannot be read, or lacks a column.
    """
    path = directory / "traffic" / "links.parquet"
    try:
        with whole(path):
            return _rows(read_parquet(path, [one.name for one in fields(LinkBytes)]), LinkBytes)
    except FileNotFoundError:
        return ()


def read_image_counts(directory: Path) -> npt.NDArray[np.int64]:
    """Return how many training images of each label each device has, (devices, labels).

    Devices are in the order of their numbers; (0, 0) without a table.

    Raises:
        NoRunError: the table cannot be read.
    """
    path = directory / "images.parquet"
    try:
        with whole(path):
            table = read_parquet(path, ["device", "label", "images"])
            found = {
                (int(row["device"].rpartition("-")[2]), int(row["label"])): int(row["images"])
                for row in table.to_pylist()
            }
            shape = tuple(1 + max(one) for one in zip(*found, strict=True)) if found else (0, 0)
            least = min((0, *(number for key in found for number in key), *found.values()))
            if least < 0 or shape[0] * shape[1] > _MOST:
                raise ValueError("it has numbers that no partition has")
            counts = np.zeros(shape, np.int64)
            for key, images in found.items():
                counts[key] = images
            return counts
    except FileNotFoundError:
        return np.zeros((0, 0), np.int64)


def joules_at(directory: Path, times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the joules that a run's devices together had used at some times; NaN without a table.

    Under the virtual clock the table has a row for each evaluation. Under the wall clock it has one
    only for the end of training, since neither processor times nor bytes are read at evaluations.
    Between two rows energy is taken to grow in proportion to time.

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
