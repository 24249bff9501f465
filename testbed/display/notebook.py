"""A run's progress in a notebook: one line with a bar, which is replaced as the run goes on."""

import sys
import time
from dataclasses import dataclass
from html import escape
from typing import Any

from testbed.display.words import describe, share_done, title
from testbed.planning.plan import Plan
from testbed.runs.watching import Progress

PERIOD = 0.25
"""Seconds between two pictures; each is a message to the browser."""


def in_notebook() -> bool:
    """Return True if this process is the kernel of a notebook."""
    # Who has not imported IPython is in none, and importing it takes long.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


@dataclass(frozen=True, slots=True)
class Picture:
    """A run at a moment: what a notebook draws as a line with a bar, and a pipe as text."""

    title: str
    share: float
    text: str

    def __repr__(self) -> str:
        return f"{self.title}: {self.text}"

    def _repr_html_(self) -> str:
        return (
            f"<div><b>{escape(self.title)}</b> "
            f'<progress value="{self.share:.4f}" max="1"></progress> {escape(self.text)}</div>'
        )


class NotebookDisplay:
    """Shows the progress of one run in the output of a cell; a ``testbed.runs.watching.Watcher``."""

    def __init__(self, plan: Plan, number: int, count: int) -> None:
        self._title = title(plan, number, count)
        self._handle: Any = None
        self._last: Picture | None = None
        self._shown = 0.0

    def close(self) -> None:
        """Show the last progress, which stays in the notebook."""
        self._show()

    def progress(self, progress: Progress) -> None:
        """Show the progress of the run, if the last picture was long enough ago."""
        self._last = Picture(self._title, share_done(progress), describe(progress))
        if time.monotonic() - self._shown >= PERIOD:
            self._show()

    def event(self, level: str, text: str) -> None:
        """Show an event."""
        print(f"{self._title}: {level}: {text}", file=sys.stderr, flush=True)

    def _show(self) -> None:
        from IPython.display import display

        if self._last is None:
            return
        self._shown = time.monotonic()
        if self._handle is None:
            self._handle = display(self._last, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(self._last)
        self._last = None
