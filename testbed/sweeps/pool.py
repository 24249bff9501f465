"""Carries out runs in processes of its own, some at a time, until all have ended or a signal comes.

A process lives for many runs, so that libraries are loaded once. A terminal's Ctrl-C reaches only this
process (the others have sessions of their own). It then sends each SIGTERM, on which a run leaves its
directory in order and nothing else on the host, and waits for all of them. A run that fails, or whose
process dies, does not keep the others from being carried out.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol

from testbed.ended import Ended
from testbed.planning.node_plan import ONE_THREAD
from testbed.runs.ending import signals
from testbed.runs.watching import AnyProgress, ProgramProgress, Progress
from testbed.sweeps.carrying_out import Result

PERIOD = 0.5
"""The most seconds between two pictures of the progress."""


@dataclass(slots=True)
class SweepJob:
    """One run to be carried out.

    Attributes:
        title: the name that is shown.
        spec: the text of its resolved spec.
        directory: its run directory.
        progress: the last progress reported; None before the first.
        result: how it ended; None until then.
    """

    title: str
    spec: str
    directory: Path
    progress: AnyProgress | None = None
    result: Result | None = None


class Display(Protocol):
    """A display of jobs."""

    def show(self, running: Sequence[SweepJob]) -> None:
        """Show the jobs that are running; called a few times per second."""

    def event(self, job: SweepJob, level: str, text: str) -> None:
        """Show an event of a job's run."""

    def ended(self, job: SweepJob) -> None:
        """Show that a job has ended."""


@dataclass(slots=True)
class _WorkerProcess:
    """A process, and the job that it carries out."""

    process: "subprocess.Popen[bytes]"
    job: SweepJob | None = None
    rest: bytes = field(default=b"", repr=False)


class SweepPool:
    """Processes that carry out runs; a context manager, because it must end them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._workers: list[_WorkerProcess] = []
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> "SweepPool":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            assert worker.process.stdin is not None
            assert worker.process.stdout is not None
            worker.process.stdin.close()  # it ends
            if worker.job is not None:  # only after a bug
                worker.process.terminate()
        for worker in self._workers:
            assert worker.process.stdout is not None
            worker.process.wait()
            worker.process.stdout.close()
        self._selector.close()

    def carry_out(self, jobs: Sequence[SweepJob], display: Display) -> int | None:
        """Carry out jobs in their order, ``size`` at a time.

        Returns:
            The number of the signal that ended the work early; None if none came.
        """
        waiting = list(reversed(jobs))
        caught: int | None = None
        with signals() as wake_up:
            self._selector.register(wake_up, selectors.EVENT_READ)
            try:
                while waiting or self._busy():
                    while waiting and len(self._busy()) < self.size:
                        self._start(waiting.pop())
                    for key, _ in self._selector.select(PERIOD):
                        if key.data is not None:
                            self._listen(key.data, display)
                        elif (
                            number := os.read(wake_up, 1)[0]
                        ) != signal.SIGCHLD and caught is None:
                            caught = number
                            waiting.clear()
                            for worker in self._busy():
                                worker.process.terminate()
                    display.show([one.job for one in self._busy() if one.job is not None])
            finally:
                self._selector.unregister(wake_up)
        return caught

    def _busy(self) -> list[_WorkerProcess]:
        return [worker for worker in self._workers if worker.job is not None]

    def _start(self, job: SweepJob) -> None:
        worker = next((one for one in self._workers if one.job is None), None) or self._new()
        worker.job = job
        share = max(1, len(os.sched_getaffinity(0)) // self.size)
        asked = {"spec": job.spec, "directory": str(job.directory), "share": share}
        line = json.dumps(asked) + "\n"
        assert worker.process.stdin is not None
        try:
            worker.process.stdin.write(line.encode())
            worker.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has died, and the end of its output says so

    def _new(self) -> _WorkerProcess:
        process = subprocess.Popen(
            [sys.executable, "-m", "testbed.sweeps.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | ONE_THREAD | {"PYTHONPATH": _search_path()},
            start_new_session=True,
        )
        worker = _WorkerProcess(process)
        self._workers.append(worker)
        assert process.stdout is not None
        self._selector.register(process.stdout, selectors.EVENT_READ, worker)
        return worker

    def _listen(self, worker: _WorkerProcess, display: Display) -> None:
        """Read messages of a process; if it has died, its job has failed."""
        assert worker.process.stdout is not None
        data = os.read(worker.process.stdout.fileno(), 65536)
        *lines, worker.rest = (worker.rest + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            assert worker.job is not None
            if "progress" in message:
                worker.job.progress = Progress(**message["progress"])
            elif "of_programs" in message:
                worker.job.progress = ProgramProgress(**message["of_programs"])
            elif "event" in message:
                display.event(worker.job, **message["event"])
            else:
                self._end(worker, Result(**message["result"]), display)
        if data:
            return
        self._selector.unregister(worker.process.stdout)
        self._workers.remove(worker)
        assert worker.process.stdin is not None
        worker.process.stdin.close()
        worker.process.stdout.close()
        status = worker.process.wait()
        ended: Ended = "interrupted" if status == -signal.SIGTERM else "failed"
        self._end(worker, Result(ended, f"its process ended with status {status}"), display)

    def _end(self, worker: _WorkerProcess, result: Result, display: Display) -> None:
        job, worker.job = worker.job, None
        if job is not None:
            job.result = result
            display.ended(job)


def _search_path() -> str:
    """Return where a process finds this code, wherever it is started."""
    package = str(Path(__file__).parents[2])
    return os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
