"""A process that carries out runs, one after the other, as the pool asks for them.

``main``, in a forked process or as ``python -m testbed.sweeps.run_process``, reads a job from each
line of standard input (``spec``, ``directory``, ``share``) and writes messages to standard output, one
JSON object per line: ``progress`` or ``of_programs`` (the fields of ``Progress`` or of
``ProgramProgress``), ``event`` (level and text) and, at the end of a run, ``result`` (the fields of
``Result``). It ends when standard input does. On SIGINT, SIGTERM or SIGHUP the run that is going on
ends and leaves its directory in order. If no process reads its messages, the pool's has died, and it
ends likewise.
"""

import json
import os
import signal
import sys
import time
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from testbed.runs.watching import AnyProgress, ProgramProgress
from testbed.sweeps.one_run import carry_out

PERIOD = 0.5
"""Seconds between two messages of progress."""


class Reporter:
    """A watcher that writes the progress and the events of a run as messages."""

    def __init__(self) -> None:
        self._last = 0.0

    def progress(self, progress: AnyProgress) -> None:
        """Write the progress if ``PERIOD`` has passed."""
        now = time.monotonic()
        if now - self._last >= PERIOD:
            self._last = now
            names = [one.name for one in fields(progress) if not one.name.startswith("_")]
            kind = "of_programs" if isinstance(progress, ProgramProgress) else "progress"
            send({kind: {name: getattr(progress, name) for name in names}})

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


def main() -> None:
    """Carry out jobs until there are no more."""
    # Between runs it ends this process, as SIGTERM does.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for line in sys.stdin:
        job = json.loads(line)
        result = carry_out(job["spec"], Path(job["directory"]), Reporter(), job["share"])
        send({"result": asdict(result)})


if __name__ == "__main__":
    main()
