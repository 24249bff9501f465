"""Carries out runs in processes of their own, some at a time, until all have ended or a signal comes.

A terminal's Ctrl-C reaches only this process (children have sessions of their own). It then sends each
child SIGTERM, on which the child leaves its run directory in order and nothing else on the host, and
waits for all of them. A run that fails does not keep the others from being carried out.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from testbed.runs.ending import signals
from testbed.runs.watching import Progress

REPOSITORY = Path(__file__).parents[1]


@dataclass(slots=True)
class Job:
    """One run to be carried out.

    Attributes:
        title: the name that is shown.
        command: the command of its process, which writes the messages of ``reproduction.child``.
        updates: the number of updates of the run.
        progress: the last progress reported; None before the first.
        result: the last message: ``ended``, ``reason``, ``directory``; None until it has ended.
    """

    title: str
    command: Sequence[str]
    updates: int
    progress: Progress | None = None
    result: dict[str, Any] | None = None
    _process: "subprocess.Popen[bytes] | None" = None
    _rest: bytes = field(default=b"", repr=False)
    _last_message: dict[str, Any] | None = None

    @property
    def running(self) -> bool:
        """True if it has begun and not ended."""
        return self._process is not None and self.result is None

    @property
    def complete(self) -> bool:
        """True if its run was completed."""
        return self.result is not None and self.result["ended"] == "completed"


class Display(Protocol):
    """A display of jobs."""

    def show(self, jobs: Sequence[Job]) -> None:
        """Show the jobs; called a few times per second."""

    def event(self, job: Job, level: str, text: str) -> None:
        """Show an event of a job's run."""

    def ended(self, job: Job) -> None:
        """Show that a job has ended."""


def carry_out(jobs: Sequence[Job], at_once: int, display: Display) -> int | None:
    """Carry out jobs in their order, ``at_once`` at a time.

    Returns:
        The number of the signal that ended the work early; None if none came.
    """
    waiting = list(jobs)
    caught: int | None = None
    with signals() as wake_up, selectors.DefaultSelector() as selector:
        selector.register(wake_up, selectors.EVENT_READ)
        try:
            while waiting or any(job.running for job in jobs):
                while waiting and caught is None and _running(jobs) < at_once:
                    _start(waiting.pop(0), selector)
                for key, _ in selector.select(0.5):
                    if key.data is None:
                        number = os.read(wake_up, 1)[0]
                        if number != signal.SIGCHLD and caught is None:
                            caught = number
                            waiting.clear()
                            _each(jobs, lambda process: process.terminate())
                    else:
                        _listen(key.data, selector, display)
                display.show(jobs)
        finally:  # children still run here only after a bug
            _each(jobs, lambda process: process.terminate())
    return caught


def _running(jobs: Sequence[Job]) -> int:
    return sum(job.running for job in jobs)


def _each(jobs: Sequence[Job], do: "Callable[[subprocess.Popen[bytes]], None]") -> None:
    for job in jobs:
        if job.running and job._process is not None:
            do(job._process)


def _start(job: Job, selector: selectors.BaseSelector) -> None:
    job._process = subprocess.Popen(
        job.command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        start_new_session=True,
    )
    assert job._process.stdout is not None
    selector.register(job._process.stdout, selectors.EVENT_READ, job)


def _listen(job: Job, selector: selectors.BaseSelector, display: Display) -> None:
    """Read messages of a child; when it has ended, set the job's result."""
    process = job._process
    assert process is not None and process.stdout is not None
    data = os.read(process.stdout.fileno(), 65536)
    *lines, job._rest = (job._rest + data).split(b"\n")
    for line in lines:
        message = json.loads(line)
        if "progress" in message:
            job.progress = Progress(**message["progress"])
        elif "event" in message:
            display.event(job, **message["event"])
        else:
            job._last_message = message
    if data:
        return
    selector.unregister(process.stdout)
    process.stdout.close()
    status = process.wait()
    ended = "interrupted" if status == -signal.SIGTERM else "failed"
    job.result = job._last_message or {
        "ended": ended,
        "reason": f"its process ended with status {status}",
    }
    display.ended(job)


def child(*arguments: str) -> tuple[str, ...]:
    """Return the command of a child."""
    return (sys.executable, "-m", "reproduction.child", *arguments)
