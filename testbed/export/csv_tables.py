"""Tidy CSV files in one folder: each row names its run, and each file has the rows of all runs.

A run's rows are replaced when it is exported again; those of other runs stay. The files are
``runs.csv`` (results), ``options.csv`` (a row for each key), ``updates.csv``, and one for each table
of ``exported_run``.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.errors import TestbedError
from testbed.export.exported_run import ExportedRun
from testbed.export.run_folder import writable


class CsvTables:
    """A folder of CSV files."""

    def __init__(self, folder: Path) -> None:
        self._folder = writable(folder)

    @property
    def hint(self) -> str:
        """A line that says how to open the runs."""
        return f"tables: {self._folder}/*.csv"

    def digest_of(self, run: ExportedRun) -> str | None:
        """Return the digest with which a run was exported; None if it has no row in ``runs.csv``."""
        path = self._folder / "runs.csv"
        if not path.exists():
            return None
        import pyarrow.compute as pc

        known = _read(path, {})
        rows = known.filter(pc.equal(known.column("run"), run.id)).to_pylist()
        return str(rows[0].get("export")) if rows else None

    def write(self, run: ExportedRun, figures: Sequence[Path]) -> str:
        """Write a run's rows; figures have no place in tables."""
        try:
            # The row of runs.csv says that all others are there: it is the last.
            for name, table in tables_of(run).items():
                self._write(self._folder / f"{name}.csv", run, table)
        except OSError as error:
            raise TestbedError(f"{self._folder} cannot be written to: {error.strerror}") from error
        return str(self._folder)

    def _write(self, path: Path, run: ExportedRun, table: Any) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        table = table.add_column(0, "run", pa.array([run.id] * len(table), pa.string()))
        if path.exists():
            texts = {one.name: one.type for one in table.schema if pa.types.is_string(one.type)}
            known = _read(path, texts)
            others = known.filter(pc.not_equal(known.column("run"), run.id))
            table = pa.concat_tables([others, table], promote_options="permissive")
        new = path.with_suffix(".new")
        write_table(table, new)
        new.replace(path)


def tables_of(run: ExportedRun) -> dict[str, object]:
    """Return all tables of a run by their files' names; a number that is not finite is null."""
    import pyarrow as pa

    manifest = run.recorded.manifest
    columns = {table.name: table.columns for table in run.tables}
    pushes = run.recorded.pushes
    columns["updates"] = {
        name: pushes.column(name).to_numpy(zero_copy_only=False) for name in pushes.column_names
    }
    found = {name: pa.table(dict(_known(content))) for name, content in columns.items()}
    options = {"key": list(run.options), "value": [str(one) for one in run.options.values()]}
    kinds = pa.schema([("key", pa.string()), ("value", pa.string())])
    found["options"] = pa.table(options, schema=kinds)
    words = {"experiment": manifest.experiment, "label": manifest.algorithm, "seed": manifest.seed}
    words |= {"ended": run.recorded.ended}
    row = words | run.results | {"export": run.digest}
    return found | {"runs": pa.Table.from_pylist([row])}


def _known(columns: Mapping[str, npt.NDArray[Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the columns of a table for Arrow, floats of 64 bits as they are read again."""
    import pyarrow as pa

    for name, column in columns.items():
        wide = column.astype(np.float64) if column.dtype.kind == "f" else column
        yield name, pa.array(wide, mask=~np.isfinite(wide))


def write_table(table: Any, path: Path) -> None:
    """Write a ``pyarrow.Table`` as CSV; null is an empty field."""
    from pyarrow import csv

    csv.write_csv(table, path, csv.WriteOptions(quoting_style="needed"))


def _read(path: Path, types: dict[str, object]) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    texts = {name: pa.string() for name in ("run", "export")} | types
    try:
        table = csv.read_csv(
            path,
            # A value may be of several lines, and longer than a block is by default.
            csv.ReadOptions(block_size=min(1 + path.stat().st_size, 1 << 30)),
            csv.ParseOptions(newlines_in_values=True),
            csv.ConvertOptions(column_types=texts),
        )
        table.column("run")
        return table
    except (pa.ArrowException, KeyError):
        raise TestbedError(
            f"{path} is no table of an export: remove it, or name another folder by --out"
        ) from None
