"""The progress of one run or of many: lines on a terminal, a plain line every few seconds in a pipe."""

import time
from collections.abc import Sequence
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from testbed.display.progress_text import describe, share_done, title
from testbed.display.standard_streams import tell, terminal
from testbed.number_text import as_duration
from testbed.planning.plans import AnyPlan
from testbed.runs.watching import AnyProgress

PLAIN_PERIOD = 5.0
"""Seconds between two lines in a pipe; a new phase of an only run is shown at once."""


class Screen(Protocol):
    """A place where the progress of many runs is shown; a context manager."""

    def __enter__(self) -> "Screen": ...

    def __exit__(self, *_: object) -> None: ...

    def count(self, *, completed: bool) -> None:
        """Count a run that has ended."""

    def show(self, running: Sequence[tuple[str, AnyProgress | None]], left: float | None) -> None:
        """Show how far all runs are: titles and progress of those going on, seconds left for all."""

    def say(self, text: str) -> None:
        """Show a line that stays."""


class Counted:
    """Runs that have ended, and how far all are in words.

    Attributes:
        title: is shown before the words.
        done, failed: the runs that have ended, and those of them that are not complete.
    """

    def __init__(self, title: str, count: int) -> None:
        """Count ``count`` runs in all."""
        self.title = title
        self.done = self.failed = 0
        self._count = count

    def count(self, *, completed: bool) -> None:
        """Count a run that has ended."""
        self.done += 1
        self.failed += not completed

    def share(self, running: Sequence[tuple[str, AnyProgress | None]]) -> float:
        """Return the share of all runs that is done, from 0 to 1."""
        whole = self.done + sum(share_done(at) for _, at in running if at is not None)
        return whole / max(self._count, 1)

    def words(self, left: float | None) -> str:
        """Return how far all runs are; ``left`` is seconds, None if unknown."""
        parts = [f"{self.done} of {self._count} runs"]
        if self.failed:
            parts.append(f"{self.failed} not complete")
        if left is not None and self.done < self._count:
            parts.append(f"about {as_duration(left)} left")
        return ", ".join(parts)


class QuietRuns(Counted):
    """Shows nothing; a ``Screen``."""

    def __enter__(self) -> "QuietRuns":
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, running: Sequence[tuple[str, AnyProgress | None]], left: float | None) -> None:
        """Show nothing."""

    def say(self, text: str) -> None:
        """Show nothing: run directories and tables have it."""


class ManyRuns(Counted):
    """Shows runs on standard error; a ``Screen``, which restores the terminal."""

    def __init__(self, title: str, count: int) -> None:
        """Make a display for ``count`` runs in all."""
        super().__init__(title, count)
        self._console, self._live = _screen()
        self._last = 0.0

    def __enter__(self) -> "ManyRuns":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, running: Sequence[tuple[str, AnyProgress | None]], left: float | None) -> None:
        """Show how far all runs are, if the last picture was long enough ago.

        Args:
            running: the titles of those that are going on, and how far each is.
            left: seconds that all will take still; None if unknown.
        """
        now = time.monotonic()
        if now - self._last < (0.2 if self._live else PLAIN_PERIOD):
            return
        self._last = now
        if not self._live:
            tell(f"{self.title}: {self.words(left)}")
            return
        table = Table.grid(padding=(0, 1))
        bar = _bar(self.share(running))
        table.add_row(Text(self.title, style="bold"), bar, self.words(left))
        for name, at in running:
            share = share_done(at) if at is not None else 0.0
            table.add_row(Text(name), _bar(share), describe(at) if at is not None else "starting")
        self._live.update(table, refresh=True)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        if self._live:
            self._console.print(Text(text))
        else:
            tell(text)


class TerminalDisplay:
    """Shows the progress of one run until it is closed; a ``testbed.runs.watching.Watcher``."""

    def __init__(self, plan: AnyPlan, number: int, count: int) -> None:
        self._title = title(plan, number, count)
        self._console, self._live = _screen()
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
        bar = _bar(share_done(progress), 24)
        table.add_row(Text(self._title, style="bold"), bar, describe(progress))
        return table


def _screen() -> tuple[Console, Live | None]:
    """Return standard error, and the lines on it that are drawn anew if it is a terminal."""
    console = terminal()
    live = Live(console=console, auto_refresh=False, transient=True)
    return console, live if console.is_terminal else None


def _bar(share: float, width: int = 16) -> Text:
    done = min(width, round(width * share))
    return Text("━" * done, style="green") + Text("━" * (width - done), style="bright_black")
