"""Display a run's progress: a live line on a terminal, a plain line every few seconds in a pipe."""

import sys
import time

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from testbed.planning.plan import Plan
from testbed.quantities import as_bytes, as_duration
from testbed.runs.watching import Progress

PLAIN_PERIOD = 5.0
"""Seconds between two lines in a pipe; a new phase is shown at once."""

_PHASES = {
    "loading": "loading libraries and data",
    "devices": "connecting workers",
    "training": "training",
    "finishing": "finishing",
}


class Display:
    """Shows the progress of one run until it is closed; a ``testbed.runs.watching.Watcher``."""

    def __init__(self, plan: Plan, number: int, count: int) -> None:
        self._title = plan.label if count == 1 else f"{plan.label} ({number}/{count})"
        self._console = Console(stderr=True)
        self._live = (
            Live(console=self._console, auto_refresh=False, transient=True)
            if self._console.is_terminal
            else None
        )
        self._last = 0.0
        self._phase = ""
        if self._live:
            self._live.start()

    def close(self) -> None:
        """Stop the live line and restore the terminal."""
        if self._live:
            self._live.stop()

    def progress(self, progress: Progress) -> None:
        """Show the progress of the run, if the last display was long enough ago."""
        now = time.monotonic()
        if self._live:
            if now - self._last >= 0.1:
                self._last = now
                self._live.update(self._picture(progress), refresh=True)
        elif progress.phase != self._phase or now - self._last >= PLAIN_PERIOD:
            self._last, self._phase = now, progress.phase
            print(f"{self._title}: {describe(progress)}", file=sys.stderr, flush=True)

    def event(self, level: str, text: str) -> None:
        """Show an event."""
        if self._live:
            self._console.print(Text(f"{self._title}: {level}: {text}", style="yellow"))
        else:
            typer.echo(f"{self._title}: {level}: {text}", err=True)

    def _picture(self, progress: Progress) -> Table:
        table = Table.grid(padding=(0, 1))
        share = progress.updates / progress.all_updates
        if progress.phase == "devices":
            share = progress.devices / progress.all_devices
        done = round(24 * share)
        bar = Text("━" * done, style="green") + Text("━" * (24 - done), style="bright_black")
        table.add_row(Text(self._title, style="bold"), bar, describe(progress))
        return table


def describe(progress: Progress) -> str:
    """Return a line about a run's progress."""
    parts = [_PHASES[progress.phase]]
    if progress.phase == "loading" and progress.made:
        parts.append(f"{progress.made:,} nodes made")
    if progress.phase == "loading" and progress.linked:
        parts.append(f"{progress.linked:,} links up")
    if progress.phase == "devices":
        parts.append(f"{progress.devices}/{progress.all_devices}")
    if progress.phase in ("training", "finishing") and progress.updates:
        parts += [
            f"{progress.updates:,}/{progress.all_updates:,} updates",
            f"{progress.rate:.0f}/s",
            "accuracy –" if progress.accuracy is None else f"accuracy {progress.accuracy:.2f} %",
            f"ingress {as_bytes(progress.wire_bytes)}",
        ]
    if progress.phase == "training" and progress.time_left is not None:
        if progress.updates < progress.all_updates:
            parts.append(f"{as_duration(progress.time_left)} left")
        elif progress.evaluations_due:
            parts.append(f"{progress.evaluations_due} evaluations left")
    if progress.lost:
        parts.append(f"{progress.lost} workers lost")
    return ", ".join(parts)
