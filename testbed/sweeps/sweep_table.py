"""The results of a sweep as one table: a row for each combination and algorithm."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import RunError
from testbed.experiment.combinations import Values, text_of
from testbed.experiment.load import AnySpec
from testbed.results.reading.quality import ACCURACY
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.tables.table import write_csv
from testbed.sweeps.needed_runs import Wanted

if TYPE_CHECKING:
    import pyarrow as pa

TABLE = "results"
"""The name of the table's files."""


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One combination of values and one algorithm, with the run that serves them.

    Attributes:
        algorithm: its name, which is the same for all values of its options.
        run: the run; it may serve several combinations, and need not be complete.
    """

    algorithm: str
    values: Values
    run: RecordedRun


def rows(wanted: Sequence[Wanted[AnySpec]]) -> list[SweepRow]:
    """Return the rows of all runs that have begun, in the order of the sweep's combinations."""
    begun = [one for one in wanted if (one.directory / "manifest.json").exists()]
    return [
        SweepRow(one.algorithm, values, run)
        for one, run in ((one, RecordedRun.load(one.directory)) for one in begun)
        for values in one.points
    ]


def table_of(rows: Sequence[SweepRow], keys: Mapping[str, Sequence[Any]]) -> "pa.Table":
    """Return the rows as a table of Arrow.

    Columns: run, algorithm, label, seed; a column for each swept key; how the run ended and why;
    updates, best and final values of the runs' own measures, such as best_perplexity, accuracies in
    percent, bytes of ingress, seconds by the run's clock and by the host's, the digest of the
    parameters.

    Args:
        keys: the swept keys with their values, which give the columns their types.
    """
    import pyarrow as pa

    scores = [row.run.score for row in rows]
    own = dict.fromkeys(score.name for score in scores if score.quality != ACCURACY)
    return pa.Table.from_pylist([_record(row, keys) for row in rows], _schema(keys, own))


def write_table(
    rows: Sequence[SweepRow], keys: Mapping[str, Sequence[Any]], folder: Path
) -> list[Path]:
    """Write the table of ``table_of`` as Parquet and CSV into a folder; return the paths.

    Raises:
        RunError: they cannot be written.
    """
    from pyarrow import parquet

    table = table_of(rows, keys)
    paths = [folder / f"{TABLE}.parquet", folder / f"{TABLE}.csv"]
    try:
        parquet.write_table(table, paths[0])
        write_csv(paths[1], table.to_pylist(), table.column_names)
    except OSError as error:
        raise RunError(f"the table of the sweep could not be written: {error}") from error
    return paths


def _schema(keys: Mapping[str, Sequence[Any]], measures: Iterable[str]) -> Any:
    import pyarrow as pa

    text, whole, number = pa.string(), pa.int64(), pa.float64()
    columns = [("run", text), ("algorithm", text), ("label", text), ("seed", whole)]
    columns += [(key, _type(values)) for key, values in keys.items() if key != "seed"]
    columns += [("ended", text), ("reason", text), ("updates", whole)]
    columns += [
        (f"{which}_{name}", number)
        for name in (*measures, ACCURACY.name)
        for which in ("best", "final")
    ]
    columns += [(f"{kind}_bytes", whole) for kind in ("payload", "message", "wire")]
    columns += [(f"{kind}_seconds", number) for kind in ("training", "host")]
    return pa.schema([*columns, ("parameters_sha256", text)])


def _type(values: Sequence[Any]) -> Any:
    """Return the Arrow type of a swept key: that of its numbers or truths, else text."""
    import pyarrow as pa

    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64()
    return pa.float64() if kinds <= {int, float} else pa.string()


def _record(row: SweepRow, keys: Mapping[str, Sequence[Any]]) -> dict[str, object]:
    import pyarrow as pa

    summary, ingress, score = row.run.summary, row.run.summary.ingress, row.run.score
    swept = {
        key: text_of(value) if _type(keys[key]) == pa.string() else value
        for key, value in row.values.items()
    }
    return {
        **swept,
        "run": row.run.id,
        "algorithm": row.algorithm,
        "label": row.run.algorithm,
        "seed": row.run.manifest.seed,
        "ended": summary.ended,
        "reason": summary.reason,
        "updates": summary.updates,
        f"best_{score.name}": score.best,
        f"final_{score.name}": score.final,
        "best_accuracy": summary.best_accuracy,
        "final_accuracy": summary.final_accuracy,
        "payload_bytes": ingress.payload_bytes,
        "message_bytes": ingress.message_bytes,
        "wire_bytes": ingress.wire_bytes,
        "training_seconds": summary.training_seconds,
        "host_seconds": summary.host_seconds,
        "parameters_sha256": summary.parameters_sha256,
    }
