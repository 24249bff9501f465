"""Showing how jobs go: a live line for each on a terminal, plain lines now and then in a pipe."""

import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reproduction.jobs import Job
from testbed.cli.progress import describe

PLAIN_PERIOD = 30.0
"""Seconds between two lines of a job in a pipe."""


class Shown:
    """Shows jobs on standard error; a context manager, because a terminal has to be given back."""

    def __init__(self, count: int) -> None:
        """Prepare; ``count`` is how many jobs there are in all."""
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
        """Show the jobs that run."""
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
        """Show something that happened."""
        if level != "info":
            self._say(f"{job.title}: {level}: {text}")

    def ended(self, job: Job) -> None:
        """Say how a job ended."""
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
