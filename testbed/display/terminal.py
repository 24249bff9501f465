"""A run's progress: a live line on a terminal, a plain line every few seconds in a pipe."""

import time

from rich.live import Live
from rich.table import Table
from rich.text import Text

from testbed.display.progress_text import describe, share_done, title
from testbed.display.standard_streams import tell, terminal
from testbed.planning.linked_plan import LinkedPlan
from testbed.runs.watching import AnyProgress

PLAIN_PERIOD = 5.0
"""Seconds between two lines in a pipe; a new phase is shown at once."""


class TerminalDisplay:
    """Shows the progress of one run until it is closed; a ``testbed.runs.watching.Watcher``."""

    def __init__(self, plan: LinkedPlan, number: int, count: int) -> None:
        self._title = title(plan, number, count)
        self._console = terminal()
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

    def progress(self, progress: AnyProgress) -> None:
        """Show the progress of the run, if the last display was long enough ago."""
        now = time.monotonic()
        if self._live:
            if now - self._last >= 0.1:
                self._last = now
                self._live.update(self._picture(progress), refresh=True)
        elif progress.phase != self._phase or now - self._last >= PLAIN_PERIOD:
            self._last, self._phase = now, progress.phase
            tell(f"{self._title}: {describe(progress)}")

    def event(self, level: str, text: str) -> None:
        """Show an event."""
        if self._live:
            self._console.print(Text(f"{self._title}: {level}: {text}", style="yellow"))
        else:
            tell(f"{self._title}: {level}: {text}")

    def _picture(self, progress: AnyProgress) -> Table:
        table = Table.grid(padding=(0, 1))
        done = round(24 * share_done(progress))
        bar = Text("━" * done, style="green") + Text("━" * (24 - done), style="bright_black")
        table.add_row(Text(self._title, style="bold"), bar, describe(progress))
        return table
