"""Carries out runs in processes of its own, some at a time, until all have ended or a signal comes.

The processes are forked from this one, whose libraries they have, and live for many runs. Where torch
has found a GPU, each starts an interpreter, as CUDA survives no fork. A terminal's Ctrl-C reaches only
this process (the others have sessions of their own). It hands the signal on, on which a run leaves its
directory in order and nothing else on the host, and waits for all of them. A run that fails, or
whose process dies, does not keep the others from being carried out.
"""

import contextlib
import json
import os
import selectors
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from threadpoolctl import threadpool_limits

from testbed.nodes.forked_process import ForkedCommand
from testbed.planning.node_plan import ONE_THREAD
from testbed.run_endings import Ended
from testbed.runs.ending import signal_in, signals
from testbed.runs.watching import AnyProgress, ProgramProgress, Progress
from testbed.signal_handlers import STOPPING
from testbed.sweeps import run_process as worker_process
from testbed.sweeps.one_run import Result

PERIOD = 0.5
"""The most seconds between two pictures of the progress."""
TITLE = "testbed:sweep"
"""What ``ps`` shows of a process that carries out runs."""
_PATIENCE = 60.0
"""Seconds after which a process that does not end is killed."""


@dataclass(slots=True)
class SweepJob:
    """One run to be carried out.

    Attributes:
        spec: the text of its resolved spec.
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
    process: ForkedCommand
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

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            if worker.job is not None:  # only after a bug
                os.kill(worker.process.process, signal.SIGTERM)
        for worker in self._workers:
            worker.process.finish(_PATIENCE)
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
                        elif (number := signal_in(wake_up)) is not None and caught is None:
                            caught = number
                            waiting.clear()
                            for worker in self._busy():
                                os.kill(worker.process.process, number)
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
        with contextlib.suppress(BrokenPipeError):  # it has died, and the end of its output says so
            worker.process.write(json.dumps(asked).encode() + b"\n")

    def _new(self) -> _WorkerProcess:
        body = _work_anew if _sees_gpu() else _work
        with Path(os.devnull).open("wb") as nothing:
            errors = nothing.fileno() if sys.stderr is None else 2  # None: there is no descriptor 2
            worker = _WorkerProcess(ForkedCommand(TITLE, body, errors=errors))
        self._workers.append(worker)
        self._selector.register(worker.process.output, selectors.EVENT_READ, worker)
        return worker

    def _listen(self, worker: _WorkerProcess, display: Display) -> None:
        """Read messages of a process; if it has died, its job has failed."""
        data = os.read(worker.process.output, 65536)
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
        self._selector.unregister(worker.process.output)
        self._workers.remove(worker)
        worker.process.finish(_PATIENCE)
        status = worker.process.status
        ended: Ended = "interrupted" if -(status or 0) in STOPPING else "failed"
        self._end(worker, Result(ended, f"its process ended with status {status}"), display)

    def _end(self, worker: _WorkerProcess, result: Result, display: Display) -> None:
        job, worker.job = worker.job, None
        if job is not None:
            job.result = result
            display.ended(job)


def _work() -> None:
    """Carry out runs, in a process that was just forked: one thread each, as several share the host."""
    os.environ.update(ONE_THREAD)  # for the libraries that a run loads
    threadpool_limits(1)  # of those that are loaded
    worker_process.main()


def _work_anew() -> None:
    """Carry out runs, as another interpreter that takes the place of this process."""
    places = (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))
    os.environ.update(ONE_THREAD, PYTHONPATH=os.pathsep.join(filter(None, places)))
    os.execv(sys.executable, [sys.executable, "-m", worker_process.__name__])


def _sees_gpu() -> bool:
    """Return True if torch has been loaded here and has found a GPU."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available()
