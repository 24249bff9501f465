"""The display of runs, one after the other or many at once, on the screen that there is."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeAlias

from testbed.display.many_runs import ManyRuns, Screen, TerminalDisplay
from testbed.display.notebook import NotebookDisplay, NotebookRuns, in_notebook
from testbed.planning.plans import AnyPlan

Display: TypeAlias = TerminalDisplay | NotebookDisplay


@contextlib.contextmanager
def displayed() -> Iterator[Callable[[AnyPlan, int, int], Display]]:
    """Yield the function that makes each run's display; it closes the display of the run before."""
    kind = NotebookDisplay if in_notebook() else TerminalDisplay
    displays: list[Display] = []

    def watch(plan: AnyPlan, number: int, count: int) -> Display:
        for display in displays:
            display.close()
        displays.append(kind(plan, number, count))
        return displays[-1]

    try:
        yield watch
    finally:
        for display in displays:
            display.close()


def many_runs(title: str, count: int) -> Screen:
    """Make the display of ``count`` runs that go on at once."""
    return NotebookRuns(title, count) if in_notebook() else ManyRuns(title, count)
