"""A pool of processes that compute the gradients of outstanding workers, ahead of their use.

What a worker computes depends only on the parameters that it was sent, on the mini-batches that it
drew and on its own state. So a computation goes to a process as soon as it has begun, and is waited for
where it is needed: results are the same to the bit for every number of processes. A worker with a state
(error feedback, buffers of its own) has it in one process, which then does all its tasks; others go
where the fewest wait. Parameters and updates are in memory that all processes share; pipes carry their
places.
"""

import os
import pickle
import select
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np

from testbed.checkpoints.stateful import State
from testbed.errors import RunError
from testbed.learning.data.datasets import Dataset
from testbed.learning.learner import Learner
from testbed.simulation.batching import Begun
from testbed.simulation.pool_process import (
    Anew,
    Drop,
    Hurry,
    Request,
    StatesRequest,
    Task,
    TaskResult,
    Work,
    fork,
    read,
)
from testbed.simulation.sent_versions import SentVersions
from testbed.training import computation
from testbed.training.settings import Settings
from testbed.updates import FloatVector, Update

WORTHWHILE = 5.0
"""The seconds of gradients, on one processor, from which a run has a pool by itself."""
LEAST = 5e-4
"""The seconds of one gradient from which it does: a task costs a tenth of a millisecond."""


def processors(
    settings: Settings, learner: Learner, parameters: FloatVector, dataset: Dataset
) -> int:
    """Return the number of processes that compute a run's gradients; 1: none but this one.

    It is what the settings say. If they say nothing, there is one for each processor of this process,
    of its share, and of the run's workers, if the gradients take ``WORTHWHILE`` and each of them
    ``LEAST``: one is measured, which changes no result.

    Args:
        learner: measures; its parameters are other ones afterwards.
    """
    asked = settings.spec.simulation.processors
    if asked is not None or settings.batched:
        return asked or 1
    there = min(len(os.sched_getaffinity(0)), computation.computing(settings))
    if settings.share is not None:
        there = min(there, settings.share)
    if there < 2:
        return 1
    np.copyto(learner.parameters, parameters)
    some = slice(settings.training.batch_size)
    took = []
    for _ in range(2):  # the first one also makes its memory
        began = time.perf_counter()
        learner.gradient(dataset.train_images[some], dataset.train_labels[some], 0)
        took.append(time.perf_counter() - began)
    learner.own_buffers = None
    gradients = settings.training.updates * computation.gradients_per_update(settings)
    return there if min(took) >= LEAST and min(took) * gradients >= WORTHWHILE else 1


@dataclass(slots=True, eq=False)
class _Process:
    """A process of the pool.

    Attributes:
        tasks: how many it has been given and not answered.
    """

    pid: int
    requests: Connection
    answers: Connection
    tasks: int = 0

    def has_answered(self) -> bool:
        """Return True if there is an answer to read, or the process has ended."""
        return bool(select.select([self.answers], [], [], 0)[0])


@dataclass(slots=True, eq=False)
class _Given:
    """A task that a process was given, and whose result has not been used."""

    number: int
    worker: int
    process: _Process
    begun: Begun
    out: FloatVector
    answer: TaskResult | None = None
    dropped: bool = False

    @property
    def is_settled(self) -> bool:
        """True if it is computed, and would be the same after other tasks of its worker."""
        return self.answer is not None and not self.answer.keeps


class ProcessPool:
    """The processes, and what they have been given; they are forked when the first task comes."""

    def __init__(self, processors: int, work: Work, versions: SentVersions) -> None:
        """Set up the pool; its processes start with the first task.

        Args:
            work: its computations change with those of the caller until the first task comes.
            versions: the parameters of everything that is begun, in ``work.memory``.
        """
        self._processors, self._work, self._versions = processors, work, versions
        self._processes: list[_Process] = []
        self._numbered = 0
        # By number: tasks without an answer. By computation, and in order: tasks not used yet.
        self._given: dict[int, _Given] = {}
        self._of: dict[Begun, _Given] = {}
        self._lines: dict[int, list[_Given]] = {}
        # The processes that have the states of workers.
        self._home: dict[int, _Process] = {}
        self._spare: list[FloatVector] = []
        self._used: FloatVector | None = None

    # -- tasks

    def begin(self, worker: int, begun: Begun) -> None:
        """Have a computation done that a worker has begun, and whose parameters are held for it."""
        if not self._processes:
            self._start()
        line = self._lines.setdefault(worker, [])
        if line:
            process = line[-1].process
        else:
            process = self._home.get(worker) or min(self._processes, key=lambda one: one.tasks)
        self._numbered += 1
        given = _Given(self._numbered, worker, process, begun, self._room())
        self._given[given.number] = self._of[begun] = given
        line.append(given)
        memory = self._work.memory
        task = Task(
            given.number,
            worker,
            line[0].number,
            begun.parts,
            [memory.place(self._versions[part]) for part in begun.parts],
            min(begun.versions),
            begun.drawn,
            memory.place(given.out),
        )
        process.tasks += 1
        self._send(process, task)

    def drop(self, begun: Begun) -> None:
        """Have a computation undone that is not needed any more; do nothing if it is unknown."""
        if (given := self._of.get(begun)) is not None:
            line = self._lines[given.worker]
            self._redo(given.worker, begun, line.index(given), again=False)

    def result(self, worker: int, begun: Begun) -> tuple[list[tuple[int, Update]], float]:
        """Return the bytes and the update of each server's part, and the loss, once they are computed.

        The updates are in memory that the next call writes to.

        Raises:
            RunError: the process has ended.
            BaseException: the computation has raised it.
        """
        line = self._lines.get(worker, [])
        given = self._of.get(begun)
        before = line if given is None else line[: line.index(given)]
        early = next((i for i, one in enumerate(before) if not one.is_settled), None)
        if early is not None and not (given and given.is_settled):
            # A worker of several servers may be heard in another order than it has begun.
            self._redo(worker, begun, early, again=True)
        elif given is None:
            self.begin(worker, begun)
        given = self._of[begun]
        if given.answer is None:
            self._send(given.process, Hurry(given.number))
        while (answer := given.answer) is None:
            self._read(given.process)
        del self._of[begun]
        self._lines[worker].remove(given)
        begun.release(self._versions)
        if self._used is not None:
            self._spare.append(self._used)
        self._used = given.out
        if answer.error is not None:
            raise answer.error
        return read(answer.parts, given.out), answer.loss

    def _redo(self, worker: int, begun: Begun, first: int, *, again: bool) -> None:
        """Undo the tasks of a worker from a place in its line on, and do them once more.

        Args:
            begun: is done before the others, or not at all.
            again: True if it is done.
        """
        undone = [
            one for one in self._lines[worker][first:] if one.begun is begun or not one.is_settled
        ]
        for one in reversed(undone):
            self._undo(one)
        for other in [begun] * again + [one.begun for one in undone if one.begun is not begun]:
            self.begin(worker, other)

    def _undo(self, given: _Given) -> None:
        given.dropped = True
        del self._of[given.begun]
        self._lines[given.worker].remove(given)
        if given.answer is not None:
            self._spare.append(given.out)
        if not given.is_settled:
            self._send(given.process, Drop(given.number, given.worker))

    # -- the states of workers

    def begin_anew(self, worker: int, incarnation: int) -> None:
        """Drop the state of a worker that was killed, and has nothing to compute."""
        self._home.pop(worker, None)
        for process in self._processes:
            self._send(process, Anew(worker, incarnation))

    def kept(self) -> Mapping[int, State]:
        """Return the workers' states, as ``Computation.kept``, before all that is not used yet.

        Those are left out that no computation has changed.
        """
        oldest = {worker: line[0].number for worker, line in self._lines.items() if line}
        states = []
        for process in self._processes:
            self._send(process, StatesRequest(oldest))
            while (state := self._read(process)) is None:
                pass
            states.append((process, state))
        return {
            worker: kept
            for process, state in states
            for worker, kept in state.items()
            if self._home.get(worker) is process
        }

    # -- processes

    def _start(self) -> None:
        for _ in range(self._processors):
            earlier = [end for one in self._processes for end in (one.requests, one.answers)]
            self._processes.append(_Process(*fork(self._work, earlier)))

    def close(self) -> None:
        for process in self._processes:
            os.kill(process.pid, signal.SIGKILL)
        for process in self._processes:
            os.waitpid(process.pid, 0)
            process.requests.close()
            process.answers.close()
        self._processes.clear()

    def _room(self) -> FloatVector:
        """Return memory for the updates of a computation: values and indices."""
        if self._spare:
            return self._spare.pop()
        return self._work.memory.new(2 * self._work.learner.layout.total)

    def _send(self, process: _Process, request: Request) -> None:
        # Read first: a process whose pipe is full of answers reads no requests.
        while process.has_answered():
            self._read(process)
        try:
            process.requests.send_bytes(pickle.dumps(request))
        except BrokenPipeError:
            raise self._ended(process) from None

    def _read(self, process: _Process) -> Mapping[int, State] | None:
        """Wait for an answer and take it in; return the states if these were asked for."""
        try:
            answer = pickle.loads(process.answers.recv_bytes())
        except (EOFError, ConnectionResetError):
            raise self._ended(process) from None
        if not isinstance(answer, TaskResult):
            states: Mapping[int, State] = answer
            return states
        process.tasks -= 1
        given = self._given.pop(answer.number)
        if given.dropped:
            self._spare.append(given.out)
            return None
        given.answer = answer
        if answer.keeps:
            self._home[given.worker] = process
        return None

    def _ended(self, process: _Process) -> RunError:
        self._processes.remove(process)
        _, status = os.waitpid(process.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        how = (
            f"was killed by {signal.Signals(-code).name}"
            if code < 0
            else f"ended with status {code}"
        )
        return RunError(
            f"a process that computes gradients {how}: with `simulation: {{processors: 1}}` there is "
            "none, and less memory is taken"
        )
