"""The progress of many runs: one line for all, and one for each that is going on."""

import time
from collections.abc import Sequence
from typing import Protocol

from rich.live import Live
from rich.table import Table
from rich.text import Text

from testbed.display.progress_text import describe, share_done
from testbed.display.standard_streams import tell, terminal
from testbed.number_text import as_duration
from testbed.runs.watching import AnyProgress

PLAIN_PERIOD = 5.0
"""Seconds between two lines in a pipe."""


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
        self._console = terminal()
        self._live = (
            Live(console=self._console, auto_refresh=False, transient=True)
            if self._console.is_terminal
            else None
        )
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
        for title, at in running:
            share = share_done(at) if at is not None else 0.0
            table.add_row(Text(title), _bar(share), describe(at) if at is not None else "starting")
        self._live.update(table, refresh=True)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        if self._live:
            self._console.print(Text(text))
        else:
            tell(text)


def _bar(share: float) -> Text:
    done = min(16, round(16 * share))
    return Text("━" * done, style="green") + Text("━" * (16 - done), style="bright_black")
