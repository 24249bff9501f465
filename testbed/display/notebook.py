"""The progress of runs in a notebook: lines with bars, which are replaced as the runs go on."""

import contextlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from testbed.display.many_runs import Counted
from testbed.display.progress_text import describe, share_done, title
from testbed.display.standard_streams import tell
from testbed.planning.plans import AnyPlan
from testbed.runs.watching import AnyProgress

PERIOD = 0.25
"""Seconds between two pictures; each is a message to the browser."""


def in_notebook() -> bool:
    """Return True if this process is the kernel of a notebook."""
    # Who has not imported IPython is in none, and importing it takes long.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


@dataclass(frozen=True, slots=True)
class ProgressLine:
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


class _Output:
    """A place in the output of a cell, whose content is replaced."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown = 0.0

    @property
    def due(self) -> bool:
        """True if the last picture was long enough ago."""
        return time.monotonic() - self._shown >= PERIOD

    def put(self, picture: object) -> None:
        from IPython.display import display

        self._shown = time.monotonic()
        # Whatever a front end raises, no run is to be lost for its picture.
        with contextlib.suppress(Exception):
            if self._handle is None:
                self._handle = display(picture, display_id=True)  # type: ignore[no-untyped-call]
            else:
                self._handle.update(picture)


class NotebookDisplay:
    """Shows the progress of one run in the output of a cell; a ``testbed.runs.watching.Watcher``."""

    def __init__(self, plan: AnyPlan, number: int, count: int) -> None:
        self._title = title(plan, number, count)
        self._output = _Output()
        self._last: ProgressLine | None = None

    def close(self) -> None:
        """Show the last progress, which stays in the notebook."""
        self._show()

    def progress(self, progress: AnyProgress) -> None:
        """Show the progress of the run, if the last picture was long enough ago."""
        self._last = ProgressLine(self._title, share_done(progress), describe(progress))
        if self._output.due:
            self._show()

    def event(self, level: str, text: str) -> None:
        """Show an event."""
        tell(f"{self._title}: {level}: {text}")

    def _show(self) -> None:
        if self._last is not None:
            self._output.put(self._last)
            self._last = None


@dataclass(frozen=True, slots=True)
class Pictures:
    """Several pictures, one below the other."""

    pictures: tuple[ProgressLine, ...]

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.pictures))

    def _repr_html_(self) -> str:
        return "".join(one._repr_html_() for one in self.pictures)


class NotebookRuns(Counted):
    """Shows many runs in the output of a cell: a line for all, one for each that is going on."""

    def __init__(self, title: str, count: int) -> None:
        super().__init__(title, count)
        self._output = _Output()

    def __enter__(self) -> "NotebookRuns":
        return self

    def __exit__(self, *_: object) -> None:
        """Show how far all came, which stays in the notebook."""
        self._output.put(Pictures((ProgressLine(self.title, self.share(()), self.words(None)),)))

    def show(self, running: Sequence[tuple[str, AnyProgress | None]], left: float | None) -> None:
        """Show how far all runs are, if the last picture was long enough ago."""
        if not self._output.due:
            return
        of_all = ProgressLine(self.title, self.share(running), self.words(left))
        each = (
            ProgressLine(name, share_done(at), describe(at))
            if at
            else ProgressLine(name, 0.0, "starting")
            for name, at in running
        )
        self._output.put(Pictures((of_all, *each)))

    def say(self, text: str) -> None:
        """Print a line that stays."""
        tell(text)
