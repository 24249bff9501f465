"""The contents of the pages: all runs of a folder, or the report of some of them."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from testbed.pages.experiments import Experiments
from testbed.results.reading.finding import find, resolve, with_ends
from testbed.results.reading.journals import NoRunError
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.report.report import Content, content_of, render
from testbed.results.tables.listing import listing
from testbed.results.tables.table import Table
from testbed.runs.followed_runs import FollowedRuns, table_of
from testbed.runs.runs_on_host import running_runs
from testbed.untrusted_text import is_unicode

MOST_EXECUTIONS = 100
"""The newest executions that are listed; ``testbed ls`` lists all."""
PAGES = "testbed.pages"
"""The package that has the templates, styles and script of the pages."""
State = frozenset[tuple[str, int, int]]
"""The names, times and sizes of files, which are others once a run has written something."""


class RunsFolder:
    """A folder of runs; nothing outside it is read."""

    def __init__(self, root: Path, experiments: Experiments) -> None:
        """Show the runs of a folder, which need not be there yet.

        Args:
            experiments: what can be started.
        """
        self._root = root.resolve()
        self._experiments = experiments
        self._followed = FollowedRuns()
        self._one_look = threading.Lock()  # several readers may have the page open

    def named(self, names: Sequence[str]) -> list[RecordedRun]:
        """Return the runs at paths below the folder; at an execution's path, all of its runs.

        Raises:
            NoRunError: no path is given, or there is nothing at one that can be read.
        """
        found: dict[Path, RecordedRun] = {}
        for name in names:
            found |= {run.directory: run for run in resolve(str(self._inside(name)), self._root)}
        if not found:
            raise NoRunError("no run is chosen: tick one in the list of runs")
        return list(found.values())

    def _inside(self, name: str) -> Path:
        path = self._root
        # It may be links in a circle, or a name that is none.
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            path = (self._root / name).resolve()
        is_inside = path != self._root and path.is_relative_to(self._root)
        if not is_inside or not os.path.isdir(path):  # noqa: PTH112 - False of too long a name, too
            raise NoRunError(f"there is no run {name[:200]!r} in the folder of this page")
        return path

    def name_of(self, run: RecordedRun) -> str | None:
        """Return the path of a run below the folder; None if it is elsewhere, or no address has it."""
        own = run.directory.resolve()
        if not own.is_relative_to(self._root):
            return None
        name = own.relative_to(self._root).as_posix()
        return name if is_unicode(name) else None

    def state(self, names: Sequence[str]) -> State:
        """Return what changes when the named runs write something, or one of them begins."""
        return frozenset(found for name in names for found in _files(self._inside(name)))

    def report(self, names: Sequence[str]) -> Content:
        """Return the report of the named runs.

        Raises:
            NoRunError: they cannot be read.
        """
        runs = self.named(names)
        going = [name for run in running_runs() if (name := self.name_of(run)) and run in runs]
        report = content_of(runs)
        above = render(PAGES, "above_report.html.j2", going=going)
        return Content(report.title, above + report.html, report.data)

    def stop(self, name: str) -> None:
        """End a run as Ctrl-C does.

        Raises:
            NoRunError: it is not running, or not in the folder.
        """
        directory = self._inside(name)
        for run in running_runs():
            if run.directory == directory:
                os.kill(run.manifest.pid, signal.SIGTERM)
                return
        raise NoRunError(f"{name} is not running")

    def all_runs(self) -> Content:
        """Return the page of all runs and of what can be started."""
        with self._one_look:
            return self._all_runs()

    def _all_runs(self) -> Content:
        found = [with_ends(one) for one in reversed(find(self._root)[-MOST_EXECUTIONS:])]
        statuses = [one for one in self._followed.look() if self.name_of(one.run)]
        runs = [run for one in found for run in one.runs if self.name_of(run)]
        going, ended = table_of(statuses), listing(runs)
        html = render(
            PAGES,
            "runs.html.j2",
            folder=str(self._root),
            going=self._rows(going, [status.run for status in statuses]),
            going_headings=going.headings,
            rows=self._rows(ended, runs),
            headings=ended.headings,
            unreadable=[
                *self._followed.left_out,
                *(str(error) for execution in found for error in execution.unreadable),
            ],
            most=MOST_EXECUTIONS,
            is_cut=len(found) == MOST_EXECUTIONS,
            files=self._experiments.files(),
            started=self._experiments.started(),
        )
        return Content("Runs · testbed", html)

    def _rows(
        self, table: Table, runs: Sequence[RecordedRun]
    ) -> list[tuple[str | None, Sequence[str]]]:
        """Return the rows of a table, each with the name of its run."""
        return [(self.name_of(run), cells) for run, cells in zip(runs, table.cells, strict=True)]


def plan(file: str, overrides: str, text: str, status: int) -> Content:
    """Return the page of an experiment's plan.

    Args:
        file, overrides: what is started from there.
        text: the plan, or why there is none.
        status: that of ``testbed plan``; 0 if the experiment can be started.
    """
    values = {"file": file, "overrides": overrides, "text": text, "fits": status == 0}
    return Content(f"Plan of {file} · testbed", render(PAGES, "plan.html.j2", **values))


def refusal(sentence: str) -> Content:
    """Return the page that says why there is nothing else to see."""
    return Content("Testbed", render(PAGES, "refusal.html.j2", sentence=sentence))


def _files(directory: Path) -> Iterator[tuple[str, int, int]]:
    """Yield name, time and size of each file below a directory; none of one that is being removed."""
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            try:
                status = path.lstat()
            except OSError:
                continue
            yield str(path), status.st_mtime_ns, status.st_size
