"""Sweeps from a program: every combination of the values of some keys, as ``testbed sweep`` has it."""

import signal
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.display.displayed import many_runs
from testbed.display.many_runs import QuietRuns
from testbed.display.standard_streams import tell
from testbed.errors import RunError, SpecError
from testbed.experiment.combinations import describe, load_sweep, parse_sweep
from testbed.experiment.overrides import of_value
from testbed.library.data_frames import frame
from testbed.library.experiment import Experiment
from testbed.library.reading import Run, Runs
from testbed.library.running import in_main_thread, warn_of_ends
from testbed.results.reading.recorded_run import RecordedRun as Recorded
from testbed.run_endings import is_complete
from testbed.sweeps import carrying_out_sweep as sweeping
from testbed.sweeps import sweep_table as tables
from testbed.sweeps.missing_runs import Means
from testbed.sweeps.sweep_table import SweepRow

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from testbed.experiment.combinations import Sweep
    from testbed.experiment.spec import Spec


class Swept:
    """The results of a sweep. Made by ``sweep``.

    Attributes:
        directory: the folder of its run directories, results.parquet, results.csv and figures.
        keys: the swept keys, each with its values.
        figures: the paths of its figures; empty if none were drawn.
    """

    def __init__(self, swept: sweeping.SweepProgress, keys: Mapping[str, tuple[Any, ...]]) -> None:
        self.directory = swept.folder
        self.keys = dict(keys)
        self.figures = swept.figures
        self._rows = tables.rows(swept.wanted)

    def table(self) -> "pd.DataFrame":
        """Return a row for each combination and algorithm, as in results.csv.

        Columns: run, algorithm, label, seed; one for each swept key; how the run ended and why;
        updates, the runs' own measures, accuracies in percent, bytes of ingress, seconds, the digest
        of the parameters.

        Raises:
            TestbedError: pandas is not installed.
        """
        return frame(self.arrow())

    def over_seeds(self) -> "pd.DataFrame":
        """Return mean and standard deviation over seeds, for each algorithm and combination.

        Columns: for each number of ``table``, such as final_accuracy, its ``mean`` and ``std`` (of a
        sample; missing with one seed), and their ``count``. Runs that lack updates are left out.

        Raises:
            TestbedError: pandas is not installed.
        """
        table = self.table()
        groups = ["algorithm", *(key for key in self.keys if key != "seed")]
        numbers = [name for name in table.select_dtypes("number") if name not in (*groups, "seed")]
        table = table[[is_complete(ended) for ended in table.ended]]
        return table.groupby(groups, sort=False)[numbers].agg(["mean", "std", "count"])

    def arrow(self) -> "pa.Table":
        """Return the table as one of Arrow."""
        return tables.table_of(self._rows, self.keys)

    @cached_property
    def runs(self) -> Runs:
        """All runs that have begun, each once, in the order of the sweep."""
        found = {row.run.directory: row.run for row in self._rows}
        return Runs(self.directory, [Run(one) for one in found.values()])

    def where(self, algorithm: str | None = None, /, **values: Any) -> Runs:
        """Return the runs of an algorithm and of some values of the swept keys.

        Args:
            algorithm: as in the table; None for all.
            values: by key, with two underscores in the place of a dot: ``waiting__mean="200ms"``. The
                last part of a key is enough if no other ends with it: ``ratio=0.01``.

        Raises:
            SpecError: a key is not swept, or there is no such run.
        """
        wanted = {self._key(name): value for name, value in values.items()}
        found: dict[Path, Recorded] = {
            row.run.directory: row.run
            for row in self._rows
            if algorithm in (None, row.algorithm)
            and all(row.values[key] == value for key, value in wanted.items())
        }
        if not found:
            words = ", ".join(filter(None, [algorithm, describe(wanted)]))
            raise SpecError(f"no run of {self.directory} has begun with {words}")
        return Runs(self.directory, [Run(one) for one in found.values()])

    def _key(self, name: str) -> str:
        name = name.replace("__", ".")
        ends = [key for key in self.keys if key == name or key.endswith(f".{name}")]
        if name in self.keys or len(ends) == 1:
            return name if name in self.keys else ends[0]
        raise SpecError(f"'{name}' is no swept key: there are {', '.join(self.keys)}")

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[SweepRow]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"<Sweep in {self.directory}: {len(self.runs)} runs of {', '.join(self.keys)}>"


def sweep(
    experiment: Experiment | str | Path,
    keys: Mapping[str, Sequence[Any]] | None = None,
    *,
    exclude: Sequence[Mapping[str, object]] | None = None,
    out: str | Path = "runs",
    at_once: int | None = None,
    ray: str | None = None,
    figures: bool = False,
    progress: bool = True,
    check: bool = True,
) -> Swept:
    """Run every combination of the values of some keys, and return the results of all.

    Simulations run side by side, each in a process of its own; emulations one after the other. Called
    again, it goes on where it stopped: complete runs are kept, disturbed ones are made again, and new
    values only add runs. Ctrl-C ends the runs that are going on, leaves nothing but run directories,
    and is raised as ``KeyboardInterrupt``.

    Args:
        experiment: an experiment, or the path of a file, which may have a ``sweep`` section.
        keys: by dotted key, as ``--set`` has them, the values: ``{"seed": [1, 2, 3]}``; they are added
            to those of the file, or replace them.
        exclude: combinations that are not run, as in a ``sweep`` section.
        out: the folder of all runs; those of the sweep are in ``NAME/sweep`` below it.
        at_once: simulations at a time; None for one per core.
        ray: the address of a Ray cluster that carries out the runs, or ``auto``; None for this host.
        figures: True to draw the figures as well, which takes seconds.
        progress: True to show what will run and how far all are, on a terminal, in a notebook or in a
            pipe.
        check: False to return the results although runs have failed; their rows say why.

    Raises:
        SpecError, DataError, HostError: it cannot be begun; nothing was started.
        RunError: runs have failed, the others are complete; or another process works on this sweep.
    """
    in_main_thread()
    loaded = _loaded(experiment, keys or {}, exclude)
    means = Means(
        tell if progress else lambda _: None,
        many_runs if progress else QuietRuns,
        at_once,
        ray,
    )
    swept = sweeping.carry_out(loaded, Path(out), means, figures=figures)
    if swept.caught is not None:
        text = (
            f"interrupted; {swept.complete} of {len(swept.wanted)} runs are complete: the same call "
            "goes on where it stopped"
        )
        if swept.caught == signal.SIGINT:
            raise KeyboardInterrupt(text)
        raise RunError(text)
    if swept.failed and check:
        raise RunError(
            f"{swept.failures}; the same call tries them once more, and check=False returns the results"
        )
    found = Swept(swept, loaded.keys)
    warn_of_ends(found.runs)
    return found


def _loaded(
    experiment: Experiment | str | Path,
    keys: Mapping[str, Sequence[Any]],
    exclude: Sequence[Mapping[str, object]] | None,
) -> "Sweep[Spec]":
    given = {**keys, **({} if exclude is None else {"exclude": exclude})}
    overrides = [
        of_value(f"sweep.{key}", values, f"sweep({key}={values!r})")
        for key, values in given.items()
    ]
    if isinstance(experiment, Experiment):
        text, path, before = experiment.source
        return parse_sweep(text, path, [*before, *overrides])
    return load_sweep(experiment, overrides)
