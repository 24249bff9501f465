"""Exporting runs to one tool, each unless the same is there already.

A run that has grown since it was exported, or was exported by another version, is replaced.
"""

import importlib.util
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, Protocol

from testbed.errors import TestbedError
from testbed.export import Tool
from testbed.export.exported_run import ExportedRun
from testbed.results.figures.chart_files import write_figures
from testbed.results.reading.recorded_run import RecordedRun

_NEEDED = {
    "tensorboard": ["tensorboard"],
    "mlflow": ["mlflow", "sqlalchemy", "alembic"],
    "wandb": ["wandb"],
}
"""The modules of each extra."""
_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",  # some seconds instead of minutes, if no server answers
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "WANDB_ERROR_REPORTING": "false",
}
"""Variables for the libraries, unless a user has set them: an export tells nobody else."""


class Destination(Protocol):
    """A place of one tool, which can be written to."""

    @property
    def hint(self) -> str:
        """A line that says how to open the exported runs."""
        ...

    def digest_of(self, run: ExportedRun) -> str | None:
        """Return the digest with which a run was exported; empty if it was cut off, None if never."""
        ...

    def write(self, run: ExportedRun, figures: Sequence[Path]) -> str:
        """Write a run in the place of an earlier export of it; return where, with what was left out."""
        ...


@dataclass(frozen=True, slots=True)
class Exported:
    """The outcome for one run: its id, whether anything was written, and where."""

    run: str
    what: Literal["written", "replaced", "unchanged"]
    where: str = ""


def destination(tool: Tool, out: str | None) -> Destination:
    """Return a tool's destination, which is known to take runs.

    Args:
        out: a folder, or of MLflow the URI of a server, too; None for the tool's own default.

    Raises:
        TestbedError: the tool's library is not installed, or the place cannot be written to.
    """
    if tool == "csv":
        from testbed.export.csv_tables import CsvTables

        return CsvTables(Path(out or "exports/csv"))
    if not all(map(_installed, _NEEDED[tool])):
        raise TestbedError(
            f"the library of {tool} is not installed: `pip install 'testbed[{tool}]'`, or use --to csv"
        )
    os.environ |= _SETTINGS | os.environ
    match tool:
        case "tensorboard":
            from testbed.export.tensorboard_files import TensorBoardFiles

            return TensorBoardFiles(Path(out or "exports/tensorboard"))
        case "mlflow":
            from testbed.export.mlflow_runs import MlflowRuns

            return MlflowRuns(out)
        case "wandb":
            from testbed.export.wandb_folders import WandbFolders

            return WandbFolders(Path(out or "exports"))


def export(
    runs: Sequence[RecordedRun], to: Destination, with_figures: bool = True
) -> Iterator[Exported]:
    """Export runs, one after the other, and yield what became of each.

    Raises:
        NoRunError: a run's journal cannot be read.
        TestbedError: the destination cannot be written to.
    """
    for recorded in runs:
        run = ExportedRun(recorded, with_figures)
        before = to.digest_of(run)
        if before == run.digest:
            yield Exported(run.id, "unchanged")
            continue
        with TemporaryDirectory() as folder:
            figures = write_figures([recorded], Path(folder)) if with_figures else []
            where = to.write(run, figures)
        yield Exported(run.id, "written" if before is None else "replaced", where)


def _installed(module: str) -> bool:
    found = importlib.util.find_spec(module)
    return (
        found is not None and found.origin is not None
    )  # not the folder ``wandb`` of earlier runs
