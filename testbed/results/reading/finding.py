"""Finding the runs that a person names.

A runs folder holds ``experiment/time-seed/algorithm`` directories. A run or an execution can be
named by its path, by these parts, by the experiment alone (its newest execution) or as ``latest``.
A directory that looks like a run but cannot be read is returned with its error, so that one broken
directory does not hide the others.
"""

import difflib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from testbed.results.reading.journals import NoRunError
from testbed.results.reading.recorded_run import RecordedRun
from testbed.untrusted_text import printable


@dataclass(frozen=True)
class Execution:
    """One execution of an experiment file: its runs, one per algorithm, in the order they began.

    Attributes:
        directory: its path.
        runs: the runs that can be read; at least one unless ``unreadable`` has one.
        unreadable: for each other run directory, why it cannot be read.
    """

    directory: Path
    runs: tuple[RecordedRun, ...]
    unreadable: tuple[NoRunError, ...] = ()

    @property
    def id(self) -> str:
        """The id ``experiment/time-seed``."""
        return printable("/".join(self.directory.parts[-2:]))

    @property
    def started(self) -> datetime | None:
        """The time at which its first run began; None if none of the runs can be read."""
        return min((run.manifest.started for run in self.runs), default=None)


def find(runs_root: Path) -> tuple[Execution, ...]:
    """Return every execution under a runs folder, oldest first; none if there is no such folder.

    One that was killed before its first run began has no run, and an error that says so.
    """
    found = _executions(runs_root, "*/*/*/manifest.json")
    known = {execution.directory for execution in found}
    without = [
        path.parent
        for path in sorted(runs_root.resolve().glob("*/*/experiment.yaml"))
        if path.parent not in known
    ]
    return tuple(Execution(one, (), (NoRunError(_never_begun(one)),)) for one in without) + found


def without_runs(text: str, runs_root: Path) -> Path | None:
    """Return the directory that a text names if it is an execution's of which no run has begun."""
    for directory in (Path(text), runs_root / text):
        is_execution = os.path.lexists(directory / "experiment.yaml")
        if is_execution and not any(directory.glob("*/manifest.json")):
            return directory.resolve()
    return None


def _never_begun(directory: Path) -> str:
    return (
        f"{directory} has no run: its execution was killed before the first began, or begins now; "
        "`testbed resume` with this path carries it out"
    )


def resolve(
    text: str, runs_root: Path, left_out: list[NoRunError] | None = None
) -> tuple[RecordedRun, ...]:
    """Return the runs that ``text`` names: one run, or all of an execution.

    Args:
        text: a path to a run or execution directory; an id below ``runs_root``, whole or without
            the algorithm; an experiment's name for its newest execution; or ``latest``.
        runs_root: the runs folder.
        left_out: gets an error for each run of the execution that cannot be read.

    Raises:
        NoRunError: nothing has that name (the message gives the nearest), or it cannot be read.
    """
    if text == "latest":
        executions = tuple(execution for execution in find(runs_root) if execution.runs)
        if not executions:
            raise NoRunError(f"there is no run under {runs_root} yet: make one with `testbed run`")
        return _readable(executions[-1], left_out)
    for directory in (Path(text), runs_root / text):
        if os.path.lexists(directory / "manifest.json"):
            return (RecordedRun.load(directory),)
        # An execution directory has runs one level down, an experiment's two.
        for pattern in ("*/manifest.json", "*/*/manifest.json"):
            executions = _executions(directory, pattern)
            if executions:
                return _readable(executions[-1], left_out)
    if (never_begun := without_runs(text, runs_root)) is not None:
        raise NoRunError(_never_begun(never_begun))
    if os.path.isdir(text):  # noqa: PTH112 - False where this user may not look, too
        raise NoRunError(
            f"{text} is no run directory and no execution directory: neither it nor a directory in "
            "it holds a manifest.json"
        )
    raise NoRunError(_unknown(text, runs_root))


def with_ends(execution: Execution) -> Execution:
    """Return an execution whose runs all have a summary that can be read, or made."""
    kept, unreadable = divided(execution.runs, lambda run: (run.summary, run.score))
    return replace(execution, runs=kept, unreadable=(*execution.unreadable, *unreadable))


def divided(
    runs: Sequence[RecordedRun], read: Callable[[RecordedRun], object]
) -> tuple[tuple[RecordedRun, ...], tuple[NoRunError, ...]]:
    """Return the runs that can be read, and for each other one, why not."""
    kept, unreadable = [], []
    for run in runs:
        try:
            read(run)
            kept.append(run)
        except NoRunError as error:
            unreadable.append(error)
    return tuple(kept), tuple(unreadable)


def _executions(root: Path, pattern: str) -> tuple[Execution, ...]:
    try:
        directories = {path.parent.parent for path in root.resolve().glob(pattern)}
    except (OSError, RuntimeError, ValueError) as error:  # links in a circle, a name that is none
        raise NoRunError(f"{root} cannot be read: {error}") from None
    return tuple(sorted(map(_execution, directories), key=_age))


def _execution(directory: Path) -> Execution:
    runs, unreadable = [], []
    for path in sorted(directory.glob("*/manifest.json")):
        try:
            runs.append(RecordedRun.load(path.parent))
        except NoRunError as error:
            unreadable.append(error)
    runs.sort(key=lambda run: (run.manifest.started, run.algorithm))
    return Execution(directory, tuple(runs), tuple(unreadable))


def _age(execution: Execution) -> tuple[float, str]:
    started = execution.started
    return (started.timestamp() if started else 0.0, execution.directory.name)


def _readable(execution: Execution, left_out: list[NoRunError] | None) -> tuple[RecordedRun, ...]:
    if not execution.runs:
        raise execution.unreadable[0]
    if left_out is not None:
        left_out += execution.unreadable
    return execution.runs


def _unknown(text: str, runs_root: Path) -> str:
    executions = find(runs_root)
    if not executions:
        return (
            f"there is no run {text!r}, nor any other under {runs_root}: name its folder by --runs"
        )
    known = {"latest"}
    for execution in executions:
        known |= {execution.directory.parent.name, execution.id, *(r.id for r in execution.runs)}
    nearest = difflib.get_close_matches(text, sorted(known, reverse=True), n=3, cutoff=0.5)
    if nearest:
        return f"there is no run {text!r}; the nearest names are {', '.join(nearest)}"
    return f"there is no run {text!r}; `testbed ls` lists those that are"
