"""Shows the progress of jobs: a live line for each on a terminal, plain lines in a pipe."""

import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reproduction.jobs import Job
from testbed.display.words import describe

PLAIN_PERIOD = 30.0
"""Seconds between two lines of a job in a pipe."""


class Shown:
    """A display of jobs on standard error; a context manager, because it must restore the terminal."""

    def __init__(self, count: int) -> None:
        """Make a display for ``count`` jobs in all."""
        self._count = count
        self._done = 0
        self._console = Console(stderr=True)
        self._live = (
            Live(console=self._console, auto_refresh=False, transient=True)
            if self._console.is_terminal
            else None
        )
        self._last: dict[str, float] = {}
        self._phases: dict[str, str] = {}

    def __enter__(self) -> "Shown":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, jobs: Sequence[Job]) -> None:
        """Show the jobs that are running."""
        running = [job for job in jobs if job.running]
        if self._live:
            table = Table.grid(padding=(0, 1))
            for job in running:
                table.add_row(Text(job.title, style="bold"), _bar(job), _line(job))
            self._live.update(table, refresh=True)
            return
        now = time.monotonic()
        for job in running:
            phase = job.progress.phase if job.progress else ""
            if (
                phase != self._phases.get(job.title)
                or now - self._last.get(job.title, 0.0) >= PLAIN_PERIOD
            ):
                self._last[job.title], self._phases[job.title] = now, phase
                self._say(f"{job.title}: {_line(job)}")

    def event(self, job: Job, level: str, text: str) -> None:
        """Print an event of a job, unless its level is ``info``."""
        if level != "info":
            self._say(f"{job.title}: {level}: {text}")

    def ended(self, job: Job) -> None:
        """Count a job that has ended, and print how it ended."""
        self._done += 1
        result = job.result or {}
        why = f": {result['reason']}" if result.get("reason") else ""
        self._say(f"{job.title}: {result['ended']}{why} ({self._done} of {self._count})")

    def _say(self, text: str) -> None:
        if self._live:
            self._console.print(Text(text))
        else:
            print(text, file=sys.stderr, flush=True)


def _line(job: Job) -> str:
    return describe(job.progress) if job.progress else "starting"


def _bar(job: Job) -> Text:
    share = job.progress.updates / job.progress.all_updates if job.progress else 0.0
    done = round(16 * share)
    return Text("━" * done, style="green") + Text("━" * (16 - done), style="bright_black")
