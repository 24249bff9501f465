"""One run in a process of its own, started by ``jobs``.

``python -m reproduction.child SPEC OUT`` begins it, ``python -m reproduction.child RUN_DIRECTORY`` goes
on with one that ended early. Neither draws figures or writes a report of the run: the pages show all
runs, and ``testbed report`` writes one's.

Tells on standard output how it goes, one JSON object per line: ``progress`` (the fields of
``Progress``), ``event`` (level and text), in the end ``directory``, ``ended`` and ``reason``. Whoever
started it and no longer listens has died: the run is then ended as by SIGTERM, so that nothing of it
stays behind.
"""

import json
import os
import signal
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

from testbed import execution
from testbed.doctor import host
from testbed.errors import TestbedError
from testbed.execution import Execution
from testbed.experiment.load import load
from testbed.planning import plan
from testbed.results.reading.run import Run
from testbed.runs.watching import Progress

PERIOD = 0.5
"""Seconds between two messages of progress."""
_TOLD = tuple(one.name for one in fields(Progress) if not one.name.startswith("_"))


class Teller:
    """Watches a run and tells of it."""

    def __init__(self) -> None:
        self._last = 0.0
        self._phase = ""

    def progress(self, progress: Progress) -> None:
        """Tell where the run stands, now and then."""
        now = time.monotonic()
        if progress.phase != self._phase or now - self._last >= PERIOD:
            self._last, self._phase = now, progress.phase
            tell({"progress": {name: getattr(progress, name) for name in _TOLD}})

    def event(self, level: str, text: str) -> None:
        """Tell what happened."""
        tell({"event": {"level": level, "text": text}})


def tell(message: dict[str, Any]) -> None:
    """Write a line; nobody there ends the run."""
    try:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - to the end
        os.kill(os.getpid(), signal.SIGTERM)


def main(*arguments: str) -> None:
    """Carry out what the arguments say; tells what became of it."""
    began = time.monotonic()
    try:
        if len(arguments) == 1:
            execution = go_on(Path(arguments[0]), began)
        else:
            file, out = map(Path, arguments)
            execution = begin(file, out, began)
    except TestbedError as error:
        tell({"ended": "failed", "reason": str(error)})
        return
    (summary,) = execution.summaries
    directory = execution.directory / summary["algorithm"]
    tell({"ended": summary["ended"], "reason": summary["reason"], "directory": str(directory)})


def begin(file: Path, out: Path, began: float) -> Execution:
    """Carry out the one run of a resolved spec.

    Raises:
        TestbedError: it cannot be carried out.
    """
    spec = load(file)
    host.check(plan.plan(spec), out)
    return execution.execute(spec, out, lambda *_: Teller(), began, report=False)


def go_on(directory: Path, began: float) -> Execution:
    """Go on with a run from its last checkpoint.

    Raises:
        TestbedError: it cannot be resumed.
    """
    from testbed.runs import resuming

    jobs = resuming.left([Run.load(directory)], whole=False)
    host.check([job.plan for job in jobs], directory)
    return execution.resume(directory.parent, jobs, lambda *_: Teller(), began, report=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
