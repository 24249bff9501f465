"""Runs of MLflow: on a tracking server, or in a database in a folder.

MLflow takes about a millisecond for a value and draws a few hundred of a curve, so that it gets at
most ``POINTS`` of each: the first, the last, and others evenly between. All are in the attached tables.
"""

import contextlib
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run
from mlflow.exceptions import MlflowException

from testbed.errors import TestbedError
from testbed.export.csv_tables import tables_of, write_table
from testbed.export.exported_run import ExportedRun, ValueTable
from testbed.export.run_folder import writable

POINTS = 1000
_METRICS, _PARAMS = 1000, 100
"""The most that a request takes."""
_IDENTITY, _DIGEST = "testbed.run_identity", "testbed.export"
_ENDS: Mapping[str, str] = {"completed": "FINISHED", "interrupted": "KILLED"}
"""MLflow's words for how a run ended; for all others it is FAILED."""
_NO_KEY = re.compile(r"[^\w./: -]", re.ASCII)
_NO_FOLDER = re.compile(r"[^\w-]", re.ASCII)


class MlflowRuns:
    """A tracking server, or a folder with a database.

    Args:
        out: its URI or its folder; None for ``MLFLOW_TRACKING_URI``, or without it a folder.

    Raises:
        TestbedError: it does not answer, or cannot be written to.
    """

    def __init__(self, out: str | None) -> None:
        where = out or os.environ.get("MLFLOW_TRACKING_URI") or "exports/mlflow"
        self._artifacts: Path | None = None
        self._uri = where
        if "://" not in where:
            folder = writable(Path(where)).resolve()
            self._artifacts = folder / "artifacts"
            self._uri = f"sqlite:///{folder / 'mlflow.db'}"
        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        with self._told():
            self._client = MlflowClient(tracking_uri=self._uri)
            self._client.search_experiments(max_results=1)

    @property
    def hint(self) -> str:
        """A line that says how to open the runs."""
        if self._artifacts is None:
            return f"to see them: {self._uri}"
        return f"to see them: mlflow server --backend-store-uri {self._uri}"

    def digest_of(self, run: ExportedRun) -> str | None:
        """Return the digest with which a run was exported."""
        with self._told():
            found = self._exported(run)
        return None if not found else found[0].data.tags.get(_DIGEST, "")

    def write(self, run: ExportedRun, figures: Sequence[Path]) -> str:
        """Delete earlier exports of a run, and make it anew."""
        client, recorded = self._client, run.recorded
        with self._told():
            for earlier in self._exported(run):
                client.delete_run(earlier.info.run_id)
            tags = {_IDENTITY: run.identity, "testbed.run": run.id, "testbed.ended": recorded.ended}
            began = round(run.began * 1000)
            experiment = self._experiment(recorded.manifest.experiment)
            made = client.create_run(experiment, began, tags, run.title).info.run_id
            params = [Param(_key(name), str(one)) for name, one in run.options.items()]
            for part in range(0, len(params), _PARAMS):
                client.log_batch(made, params=params[part : part + _PARAMS])
            metrics = [Metric(f"result/{_key(k)}", v, began, 0) for k, v in run.results.items()]
            metrics += [one for table in run.tables for one in _metrics(table, began)]
            for part in range(0, len(metrics), _METRICS):
                client.log_batch(made, metrics[part : part + _METRICS])
            for figure in figures:
                client.log_artifact(made, str(figure), "figures")
            with TemporaryDirectory() as folder:
                for name, table in tables_of(run).items():
                    write_table(table, Path(folder) / f"{name}.csv")
                client.log_artifacts(made, folder, "tables")
            if recorded.specification:
                client.log_text(made, recorded.specification, "spec.yaml")
            if recorded.ended != "running":
                ended = began + round(1000 * (recorded.summary.host_seconds or 0))
                client.set_terminated(made, _ENDS.get(recorded.ended, "FAILED"), ended)
            client.set_tag(made, _DIGEST, run.digest)
        longest = max(map(len, run.tables), default=0)
        return f"{self._uri}, run {made}" + (
            f"; {POINTS:,} of up to {longest:,} values of a curve, all in tables/"
            if longest > POINTS
            else ""
        )

    def _exported(self, run: ExportedRun) -> list[Run]:
        """Return the exports of a run that are not deleted."""
        experiment = self._client.get_experiment_by_name(run.recorded.manifest.experiment)
        if experiment is None:
            return []
        wanted = f"tags.`{_IDENTITY}` = '{run.identity}'"
        return list(self._client.search_runs([experiment.experiment_id], wanted))

    def _experiment(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        place = (
            None
            if self._artifacts is None
            else (self._artifacts / _NO_FOLDER.sub("_", name)).as_uri()
        )
        return str(self._client.create_experiment(name, artifact_location=place))

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (MlflowException, OSError) as error:  # those of requests are of the latter
            reason = str(error).partition("\n")[0].rpartition("(Caused by ")[2][:300]
            raise TestbedError(
                f"MLflow at {self._uri} does not take the runs: {reason}: name a server's address or a "
                "folder by --out or MLFLOW_TRACKING_URI"
            ) from error


def _metrics(table: ValueTable, began: int) -> Iterator[Metric]:
    """Yield the values of a table's curves that are finite, at most ``POINTS`` of each."""
    times = (began + np.round(1000 * table.time)).astype(np.int64)
    for name, values in table.values.items():
        known = np.flatnonzero(np.isfinite(values))
        if len(known) > POINTS:
            known = known[np.linspace(0, len(known) - 1, POINTS).round().astype(int)]
        rows = list(zip(values[known].tolist(), times[known].tolist(), strict=True))
        for step, column in table.steps.items():
            key = _key(table.tag(name, step))
            for (value, time), at in zip(rows, column[known].tolist(), strict=True):
                yield Metric(key, value, time, at)


def _key(name: str) -> str:
    """Return a name in the characters that MLflow takes."""
    return _NO_KEY.sub("_", name)
