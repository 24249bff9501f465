"""Offline runs of Weights & Biases, which ``wandb sync`` uploads.

A run has the same id however often it is exported, so that it is uploaded to the same place.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import wandb

from testbed.errors import TestbedError
from testbed.export.exported_run import ExportedRun, ValueTable
from testbed.export.run_folder import digest_in, mark, writable
from testbed.run_endings import is_complete


class WandbFolders:
    """A folder in which W&B keeps offline runs, as ``wandb/offline-run-TIME-ID``.

    Raises:
        TestbedError: it cannot be written to.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = writable(folder)

    @property
    def hint(self) -> str:
        """A line that says how to open the runs."""
        return f"to upload them: wandb sync {self._folder}/wandb/offline-run-*"

    def digest_of(self, run: ExportedRun) -> str | None:
        """Return the digest with which a run was exported."""
        found = [digest_in(one) or "" for one in self._exported(run)]
        return found[0] if found else None

    def write(self, run: ExportedRun, figures: Sequence[Path]) -> str:
        """Delete the folders of earlier exports of a run, and write a new one."""
        try:
            for earlier in self._exported(run):
                shutil.rmtree(earlier)
            made = wandb.init(
                project=run.recorded.manifest.experiment,
                name=run.title,
                id=run.identity,
                dir=self._folder,
                mode="offline",
                config=run.options,
                reinit="create_new",
                settings=_SETTINGS,
            )
            for table in run.tables:
                _log(made, table)
            for path in figures:
                if path.suffix == ".png":
                    made.log({f"figures/{path.stem}": wandb.Image(str(path))})
            made.summary.update({f"result/{name}": value for name, value in run.results.items()})
            folder = Path(made.dir).parent
            made.finish(exit_code=0 if is_complete(run.recorded.ended) else 1)
            mark(folder, run, run.digest)
        except (OSError, wandb.Error) as error:
            raise TestbedError(f"{self._folder} does not take the run {run.id}: {error}") from error
        return str(folder)

    def _exported(self, run: ExportedRun) -> list[Path]:
        return sorted(self._folder.glob(f"wandb/offline-run-*-{run.identity}"))


_SETTINGS = wandb.Settings(
    console="off",
    silent=True,
    disable_git=True,
    save_code=False,
    x_disable_meta=True,  # of this host and process, not of the run's
    x_disable_stats=True,
    x_save_requirements=False,
)


def _log(made: wandb.Run, table: ValueTable) -> None:
    """Log a row for each of a table's, with its steps, and each value once for each of them."""
    curves = [
        (table.tag(name, step), step, values)
        for name, values in table.values.items()
        for step in table.steps
    ]
    steps = {step: column.tolist() for step, column in {"time": table.time, **table.steps}.items()}
    for step in steps:
        made.define_metric(step, hidden=True)
    for tag, step, _ in curves:
        made.define_metric(tag, step_metric=step)
    columns = {tag: (values.tolist(), np.isfinite(values).tolist()) for tag, _, values in curves}
    for row in range(len(table)):
        known = {tag: values[row] for tag, (values, finite) in columns.items() if finite[row]}
        if known:
            made.log(known | {step: column[row] for step, column in steps.items()})
