"""Carries out a sweep: finds the runs that exist, makes the others, and writes the results of all.

Started again after any interruption, it goes on where it stopped: complete runs are not repeated,
except disturbed ones, which are not what the file defines. One that ended early goes on from its last
checkpoint, or from the beginning.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from testbed.experiment.combinations import Sweep
from testbed.experiment.load import AnySpec
from testbed.experiment.spec import Spec
from testbed.number_text import as_number
from testbed.results.reading.recorded_run import RecordedRun
from testbed.run_endings import STATES, Ended, is_complete, is_kept
from testbed.sweeps import estimate
from testbed.sweeps.missing_runs import CarriedOut, Means, carry_out_missing
from testbed.sweeps.needed_runs import Wanted, wanted
from testbed.sweeps.pool import SweepJob
from testbed.sweeps.sweep_figures import write_figures
from testbed.sweeps.sweep_table import rows, write_table


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """The results of a sweep so far.

    Attributes:
        folder: the folder of its runs, tables and figures.
        failed: the runs that were begun now and failed, with the reason.
        others: the runs that are complete and not ``completed`` (they diverged, or were disturbed),
            whenever they were made.
        caught: the number of the signal that ended the work early; None if it was finished.
        table, figures: the paths of the results; empty if no run has begun.
    """

    folder: Path
    wanted: tuple[Wanted[AnySpec], ...]
    failed: tuple[SweepJob, ...] = ()
    others: tuple[RecordedRun, ...] = ()
    caught: int | None = None
    table: tuple[Path, ...] = ()
    figures: tuple[Path, ...] = ()

    @property
    def complete(self) -> int:
        """The number of complete runs, without disturbed ones."""
        return sum(_kept(_begun(one)) for one in self.wanted)

    @property
    def failures(self) -> str:
        """A sentence on the runs that failed."""
        first = self.failed[0]
        reason = first.result.reason if first.result else None
        return f"{len(self.failed)} of {len(self.wanted)} runs failed; {first.title}: {reason}"

    @property
    def worst(self) -> tuple[Ended, str] | None:
        """The worst end of the ``others``, and a sentence on the runs with it; None without them."""
        if not self.others:
            return None
        of = {run.summary.ended for run in self.others}
        ended = [state for state in STATES if state in of][-1]
        runs = [run for run in self.others if run.summary.ended == ended]
        of_all = f"{len(runs)} of {as_number(len(self.wanted), 'run')}"
        first = runs[0]
        return ended, f"{of_all} {ended}; {first.directory.name}: {first.summary.reason}"


def carry_out(
    sweep: Sweep[AnySpec], runs_root: Path, means: Means, *, figures: bool = True
) -> SweepProgress:
    """Carry out every run of a sweep that is not complete, or disturbed, and write the results of all.

    Args:
        runs_root: the folder of all runs; those of the sweep are in ``NAME/sweep`` below it.
        figures: True to draw the figures at the end, which takes seconds.

    Raises:
        SpecError, DataError, HostError: it cannot be begun.
        RunError: another process is carrying it out.
    """
    runs = wanted(sweep, runs_root)
    begun = {one.directory: run for one in runs if (run := _begun(one))}
    complete = {directory: run for directory, run in begun.items() if _kept(run)}
    missing = [one for one in runs if one.directory not in complete]
    folder = runs[0].directory.parent
    means.say(f"{as_number(len(runs), 'run')}, {len(complete)} of them complete")
    for directory, run in begun.items():
        if is_complete(run.manifest.ended) and not _kept(run):
            means.say(f"{directory.name} was {run.manifest.ended} and is made again")
    done = CarriedOut()
    if missing:
        known = estimate.of_runs(
            (one.spec, complete[one.directory])
            for one in runs
            if one.directory in complete and isinstance(one.spec, Spec)
        )
        done = carry_out_missing(sweep.name, missing, folder, means, known)
    swept = SweepProgress(folder, tuple(runs), failed=done.failed, caught=done.caught)
    return _with_results(swept, sweep, figures)


def _with_results(swept: SweepProgress, sweep: Sweep[AnySpec], figures: bool) -> SweepProgress:
    """Write the table and, if wanted, the figures so far; return the sweep with their paths."""
    found = rows(swept.wanted)
    if not found:
        return swept
    table = write_table(found, sweep.keys, swept.folder)
    drawn = write_figures(found, sweep.keys, swept.folder / "figures") if figures else []
    each = {row.run.directory: row.run for row in found}
    others = tuple(
        run for run in each.values() if run.ended != "completed" and is_complete(run.ended)
    )
    return replace(swept, others=others, table=tuple(table), figures=tuple(drawn))


def _begun(one: Wanted[AnySpec]) -> RecordedRun | None:
    return RecordedRun.load(one.directory) if (one.directory / "manifest.json").exists() else None


def _kept(run: RecordedRun | None) -> bool:
    """Return True if a run has the result that its file defines."""
    return run is not None and is_kept(run.manifest.ended)
