"""One run in a process of its own: ``python -m reproduction.child SPEC OUT``, started by ``jobs``.

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

from testbed.errors import TestbedError
from testbed.experiment.load import load
from testbed.orchestrator import experiment, host, plan
from testbed.orchestrator.watching import Progress

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


def main(file: str, out: str) -> None:
    """Carry out the one run of a resolved spec; tells what became of it."""
    began = time.monotonic()
    try:
        spec = load(file)
        plans = plan.plan(spec)
        host.check(plans, Path(out))
        execution = experiment.execute(spec, Path(out), lambda *_: Teller(), began)
    except TestbedError as error:
        tell({"ended": "failed", "reason": str(error)})
        return
    (summary,) = execution.summaries
    directory = execution.directory / summary["algorithm"]
    tell({"ended": summary["ended"], "reason": summary["reason"], "directory": str(directory)})


if __name__ == "__main__":
    main(*sys.argv[1:])
