"""Carries out one run in a process of its own, which ``jobs`` starts.

``python -m reproduction.child SPEC OUT`` begins a run, ``python -m reproduction.child RUN_DIRECTORY``
resumes one that ended early. Neither draws figures or writes a report of the run: the pages show all
runs, and ``testbed report`` writes the report of one.

The process writes messages to standard output, one JSON object per line: ``progress`` (the fields of
``Progress``), ``event`` (level and text), and finally ``directory``, ``ended`` and ``reason``. If the
pipe is broken, the process that started it has died: the run then gets SIGTERM, so that nothing of it
is left on the host.
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
from testbed.doctor import requirements
from testbed.errors import TestbedError
from testbed.execution import Execution
from testbed.experiment.load import load
from testbed.planning import plan
from testbed.results.reading.run import Run
from testbed.runs.watching import Progress

PERIOD = 0.5
"""Seconds between two messages of progress."""
_SENT = tuple(one.name for one in fields(Progress) if not one.name.startswith("_"))


class Reporter:
    """A watcher that writes the progress and the events of a run as messages."""

    def __init__(self) -> None:
        self._last = 0.0
        self._phase = ""

    def progress(self, progress: Progress) -> None:
        """Write the progress if the phase is new or ``PERIOD`` has passed."""
        now = time.monotonic()
        if progress.phase != self._phase or now - self._last >= PERIOD:
            self._last, self._phase = now, progress.phase
            send({"progress": {name: getattr(progress, name) for name in _SENT}})

    def event(self, level: str, text: str) -> None:
        """Write an event."""
        send({"event": {"level": level, "text": text}})


def send(message: dict[str, Any]) -> None:
    """Write a message as a line; end the run if no process reads it."""
    try:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - to the end
        os.kill(os.getpid(), signal.SIGTERM)


def main(*arguments: str) -> None:
    """Begin or resume a run, as the arguments say, and write how it ended."""
    began = time.monotonic()
    try:
        if len(arguments) == 1:
            execution = go_on(Path(arguments[0]), began)
        else:
            file, out = map(Path, arguments)
            execution = begin(file, out, began)
    except TestbedError as error:
        send({"ended": "failed", "reason": str(error)})
        return
    (summary,) = execution.summaries
    directory = execution.directory / summary["algorithm"]
    send({"ended": summary["ended"], "reason": summary["reason"], "directory": str(directory)})


def begin(file: Path, out: Path, began: float) -> Execution:
    """Carry out the one run of a resolved spec.

    Raises:
        TestbedError: the run cannot be carried out.
    """
    spec = load(file)
    requirements.check(plan.plan(spec), out)
    return execution.execute(spec, out, lambda *_: Reporter(), began, report=False)


def go_on(directory: Path, began: float) -> Execution:
    """Resume a run from its last checkpoint.

    Raises:
        TestbedError: the run cannot be resumed.
    """
    from testbed.runs import resuming

    jobs = resuming.left([Run.load(directory)], whole=False)
    requirements.check([job.plan for job in jobs], directory)
    return execution.resume(directory.parent, jobs, lambda *_: Reporter(), began, report=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
