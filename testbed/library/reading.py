"""Runs as a program reads them: their tables, curves, summaries and events, from their directories."""

import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from testbed.errors import SpecError
from testbed.library.data_frames import frame
from testbed.results.reading import finding
from testbed.results.reading.distinct_names import distinct_names
from testbed.results.reading.journals import NoRunError, read_columns, read_evaluations
from testbed.results.reading.recorded_run import RecordedRun as Recorded
from testbed.results.reading.recorded_tables import read_utilisation_table
from testbed.results.reading.run_files import Event, Summary

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

CURVE = {
    "updates": "iteration",
    "seconds": "time",
    "accuracy": "accuracy",
    "payload": "payload_bytes",
    "message": "message_bytes",
    "wire": "wire_bytes",
}
"""The columns of a curve, and what the table of evaluations calls them."""


class Run:
    """One run, read from its directory; it may still be going on. Made by ``open_run``.

    Attributes:
        recorded: the same run with everything that reports show.
    """

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded

    @property
    def directory(self) -> Path:
        """Its run directory."""
        return self.recorded.directory

    @property
    def id(self) -> str:
        """``experiment/time-seed/label``, as ``testbed ls`` prints it."""
        return self.recorded.id

    @property
    def label(self) -> str:
        """The algorithm's label, such as ``adacomp-0.01``."""
        return self.recorded.algorithm

    @property
    def seed(self) -> int:
        """The seed of all its random numbers."""
        return self.recorded.manifest.seed

    @property
    def summary(self) -> Summary:
        """Its end and its results: accuracies in percent, bytes, seconds, the parameters' digest."""
        return self.recorded.summary

    def updates(self) -> "pa.Table":
        """Return one row for each push that the server took in.

        Columns: iteration, worker, base_version, staleness, payload_bytes, message_bytes, loss, time
        (seconds of the run's clock since training began), applied, server.
        """
        return self.recorded.pushes

    def evaluations(self) -> "pa.Table":
        """Return one row for each evaluation.

        Columns: iteration, time (seconds of the run's clock since training began), accuracy (percent),
        loss, and the ingress so far: payload_bytes, message_bytes, wire_bytes; and the run's measure,
        such as perplexity, if it has one, and exact values, if the simulator computed any.
        """
        return read_evaluations(self.directory, self.recorded.manifest.evaluated)

    def diagnostics(self) -> "pa.Table":
        """Return the numbers that the algorithm reports, with a row for each update.

        Columns: iteration, and the algorithm's own; nothing if it reports none.
        """
        names = [one.name for one in self.recorded.manifest.diagnostics]
        return read_columns(self.directory, "diagnostics", ["iteration", *names])

    def curve(self) -> "pd.DataFrame":
        """Return the evaluations as a DataFrame: updates, seconds, accuracy, payload, message, wire.

        Accuracies are in percent, the last three are bytes of ingress so far. Before the accuracy, a
        column has the run's own measure, such as perplexity, or the loss where there is no accuracy.

        Raises:
            TestbedError: pandas is not installed.
        """
        return frame(_curve(self.evaluations(), [self]))

    def utilisation(self) -> "pd.DataFrame":
        """Return how busy each device was, over the time of training, as a DataFrame with a row each.

        Columns: device, part (server, worker, peer, aggregator, machine), machine (if it shares one);
        cpu_source, cpu_window (seconds), cpu_seconds, cpu_limit (processors) and cpu_utilisation (a
        share, 1 is all of it); bytes_source, bytes_window (seconds), sent_bytes, received_bytes,
        uplink_rate and downlink_rate (bit/s), uplink_utilisation and downlink_utilisation (shares).
        Devices whose power is known have idle_watts, busy_watts, sent_joules and received_joules (a
        byte's), on_seconds and joules, their energy. What is not known is missing.
        ``summary.utilisation`` has the means of each part, ``summary.energy`` the sum.
        """
        table = read_utilisation_table(self.directory)
        if table is None:
            raise NoRunError(
                f"{self.directory} has no table of its devices' use: the run was made before there was "
                "one, or was killed before its end"
            )
        return frame(table)

    def messages(self) -> "pa.Table":
        """Return one row for each message in the capture of the servers' links, by time.

        Columns: time (seconds since training began), seconds (from its first byte to its last), source,
        destination, kind (null if its header was not captured), what its header says (device,
        parameters, encoding, version, base, loss, …; null where the kind has none), bytes, wire_bytes,
        sent_again_bytes, and whole: whether all of it was seen. What the capture lacks is a warning.

        Raises:
            NoRunError: the run was not captured, or the capture cannot be read.
        """
        from testbed.runs.ledgers.message_table import captured_messages

        table, damage = captured_messages(self.recorded)
        for problem in damage:
            warnings.warn(problem, stacklevel=2)
        return table

    def events(self) -> tuple[Event, ...]:
        """Return what happened, in order: time (seconds since the run began), level, device, event."""
        return self.recorded.events

    def __repr__(self) -> str:
        summary = self.summary
        return f"<Run {self.id}: {summary.ended}, {summary.updates:,} updates>"


class Runs(Sequence[Run]):
    """Several runs, such as those of one experiment; a sequence, also by label: ``runs["asgd"]``.

    Attributes:
        directory: the folder of their execution.
    """

    def __init__(self, directory: Path, runs: Sequence[Run]) -> None:
        self.directory = directory
        self._runs = tuple(runs)

    def __len__(self) -> int:
        return len(self._runs)

    @overload
    def __getitem__(self, which: int | str) -> Run: ...
    @overload
    def __getitem__(self, which: slice) -> tuple[Run, ...]: ...
    def __getitem__(self, which: int | str | slice) -> Run | tuple[Run, ...]:
        if not isinstance(which, str):
            return self._runs[which]
        named = dict(zip(self.names, self._runs, strict=True))
        found = [named[which]] if which in named else [r for r in self._runs if r.label == which]
        if len(found) != 1:
            how_many = "are several runs" if found else "is no run"
            raise KeyError(f"there {how_many} {which!r}: there are {', '.join(self.names)}")
        return found[0]

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """A short name for each run, no two alike: its label, where that is enough."""
        return distinct_names([run.recorded for run in self._runs])

    def curve(self) -> "pd.DataFrame":
        """Return the curves of all runs, one below the other, as ``Run.curve`` with a column ``run``.

        A measure that only some of them have is missing in the rows of the others.

        Raises:
            TestbedError: pandas is not installed.
        """
        return frame(_curve(self.evaluations(), self._runs))

    def updates(self) -> "pa.Table":
        """Return the updates of all runs, as ``Run.updates`` with a column ``run`` first."""
        return self._together([run.updates() for run in self._runs])

    def evaluations(self) -> "pa.Table":
        """Return the evaluations of all runs, as ``Run.evaluations`` with a column ``run`` first."""
        return self._together([run.evaluations() for run in self._runs])

    def diagnostics(self) -> "pa.Table":
        """Return those of all runs, as ``Run.diagnostics`` with a column ``run`` first."""
        return self._together([run.diagnostics() for run in self._runs])

    @property
    def only(self) -> Run:
        """The run, if there is only one.

        Raises:
            SpecError: there are several.
        """
        if len(self._runs) != 1:
            raise SpecError(
                f"there are {len(self._runs)} runs, {', '.join(self.names)}: take one by its name, "
                f"such as runs[{self.names[0]!r}]"
            )
        return self._runs[0]

    @property
    def summary(self) -> Summary:
        """The summary of the only run; with several, take one: ``runs["asgd"].summary``."""
        return self.only.summary

    def events(self) -> tuple[Event, ...]:
        """Return the events of the only run; with several, take one: ``runs["asgd"].events()``."""
        return self.only.events()

    def __repr__(self) -> str:
        return f"<Runs in {self.directory}: {', '.join(self.names)}>"

    def _together(self, tables: Sequence[Any]) -> Any:
        import pyarrow as pa

        named = [
            table.add_column(0, "run", pa.array([name] * len(table), pa.string()))
            for name, table in zip(self.names, tables, strict=True)
        ]
        return pa.concat_tables(named, promote_options="permissive")


def _curve(evaluations: Any, runs: Sequence[Run]) -> Any:
    """Return the columns of curves, with the qualities that runs have besides accuracy."""
    named = {run.recorded.quality.name for run in runs}
    own = {name: name for name in evaluations.column_names if name in named}
    columns: dict[str, str] = {}
    for name, column in CURVE.items():
        columns |= own | {name: column} if name == "accuracy" else {name: column}
    if "run" in evaluations.column_names:
        columns = {"run": "run", **columns}
    return evaluations.select(list(columns.values())).rename_columns(list(columns))


def open_runs(which: str | Path, *, root: str | Path = "runs") -> Runs:
    """Open the runs of an execution, or one run.

    Args:
        which: the directory of an execution or of a run; or below ``root`` an id, an experiment's name
            for its newest execution, or ``latest``.
        root: the folder of all runs.

    Raises:
        NoRunError: there is no such run, or it cannot be read.
    """
    found = finding.resolve(str(which), Path(root))
    return Runs(found[0].directory.parent, [Run(one) for one in found])


def open_run(which: str | Path, *, root: str | Path = "runs") -> Run:
    """Open one run; arguments as for ``open_runs``.

    Raises:
        NoRunError: there is no such run, it cannot be read, or there are several.
    """
    runs = open_runs(which, root=root)
    if len(runs) > 1:
        raise NoRunError(
            f"{which} has {len(runs)} runs: name one, such as {runs.directory / runs[0].label}, or use "
            "open_runs"
        )
    return runs[0]
