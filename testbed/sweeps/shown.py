"""The display of a pool's jobs, which also says how long all will take still."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.display.many import Screen
from testbed.ended import is_complete
from testbed.sweeps.pool import SweepJob


class Shown:
    """Shows jobs on a screen; a ``testbed.sweeps.pool.Display``."""

    def __init__(self, screen: Screen, expected: Mapping[Path, float], at_once: int) -> None:
        """Make a display.

        Args:
            expected: the seconds that runs will take, by their directories, as far as known.
            at_once: the number of runs at a time.
        """
        self._screen = screen
        self._expected = dict(expected)
        self._at_once = at_once
        self._began = time.monotonic()
        self._all = sum(expected.values())

    def show(self, running: Sequence[SweepJob]) -> None:
        """Show the jobs that are running."""
        self._screen.show([(job.title, job.progress) for job in running], self._left())

    def event(self, job: SweepJob, level: str, text: str) -> None:
        """Print an event of a job, unless its level is ``info``."""
        if level != "info":
            self._screen.say(f"{job.title}: {level}: {text}")

    def ended(self, job: SweepJob) -> None:
        """Count a job that has ended, and say why if it is not complete."""
        assert job.result is not None
        self._screen.count(completed=is_complete(job.result.ended))
        self._expected.pop(job.directory, None)
        if job.result.ended != "completed":
            self._screen.say(f"{job.title}: {job.result.ended}: {job.result.reason}")

    def _left(self) -> float | None:
        """Return the seconds left: as long as was foreseen, times how wrong that was so far."""
        left = sum(self._expected.values())
        done = self._all - left
        if not done:
            return left / self._at_once or None
        return (time.monotonic() - self._began) * left / done
