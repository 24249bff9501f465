"""A process of the pool: computes gradients, and what workers select and encode of them.

It is forked with everything that it reads, keeps the part of its workers' states that computations
change, and ends when it is killed, with its parent or on the closing of its pipe. A worker's
computations are done in the order in which they were begun, and ahead of their use. Before each one the
worker's state is put aside: a computation that is dropped, or not yet used when a checkpoint is taken,
leaves no trace.
"""

import contextlib
import copy
import mmap
import os
import pickle
import select
import signal
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import psutil

from testbed.checkpoints.stateful import State
from testbed.learning.learner import Learner
from testbed.nodes.linux import die_with_parent
from testbed.plugins.names import nearest_place, send_place
from testbed.signal_handlers import STOPPING
from testbed.simulation.sent_versions import Part
from testbed.training.computation import Computation, Drawn
from testbed.training.slices import Slice
from testbed.updates import DenseUpdate, FloatVector, SparseUpdate, Update

_NO_RESERVE = 0x4000
"""MAP_NORESERVE, which the module ``mmap`` has from Python 3.13 on."""
_PAGE = 4096
_TOLD = 20_000
"""The most characters of a traceback that are sent: an answer has to fit into a pipe."""


class SharedMemory:
    """Memory that a process and its later children share; it takes room only where it is written to."""

    def __init__(self) -> None:
        flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | _NO_RESERVE
        # The addresses of as much as the host could have: memory cannot be added after a fork.
        self._memory = mmap.mmap(-1, psutil.virtual_memory().total, flags)
        self._used = 0
        self._place: dict[int, int] = {}
        self._arrays: list[FloatVector] = []  # kept, so that no two have had one id

    def new(self, entries: int) -> FloatVector:
        """Return new memory for numbers of four bytes, zero, (entries,)."""
        place = self._used
        self._used += -(-4 * entries // _PAGE) * _PAGE
        if self._used > len(self._memory):
            raise MemoryError("the simulation's vectors take more memory than the host has")
        array = self.at(place, entries)
        self._arrays.append(array)
        self._place[id(array)] = place
        return array

    def like(self, vector: FloatVector) -> FloatVector:
        """Return new memory for a vector of the same length."""
        return self.new(len(vector))

    def place(self, array: FloatVector) -> int:
        """Return the place of an array that ``new`` returned, by which other processes find it."""
        return self._place[id(array)]

    def at(self, place: int, entries: int) -> FloatVector:
        return np.frombuffer(self._memory, np.float32, entries, place)


class Task(NamedTuple):
    """A computation to be done.

    Attributes:
        number: counts the tasks of the run.
        oldest: the number of the worker's first task whose answer has not been used.
        parts: the parameters' parts; none at the worker's own copy.
        places: where the parts are.
        out: the place for the updates.
    """

    number: int
    worker: int
    oldest: int
    parts: Sequence[Part]
    places: Sequence[int]
    version: int
    drawn: Drawn
    out: int


class Drop(NamedTuple):
    """A task that is no longer needed, nor any later one of its worker that was computed."""

    number: int
    worker: int


class Hurry(NamedTuple):
    """A task that is waited for: compute it next."""

    number: int


class Anew(NamedTuple):
    """A worker that has lost its state, and begins as another incarnation."""

    worker: int
    incarnation: int


class StatesRequest(NamedTuple):
    """A request for the states of the workers that have one here.

    Attributes:
        oldest: as in ``Task``, by worker; their states before that task are wanted.
    """

    oldest: Mapping[int, int]


class TaskResult(NamedTuple):
    """The result of a task.

    Attributes:
        parts: of each server's part the bytes on the wire, the number of entries, and True if it is
            sparse; none if nothing is pushed, or the task was dropped in time.
        keeps: True if the worker now has a state, and its tasks belong to this process.
    """

    number: int
    loss: float = 0.0
    parts: Sequence[tuple[int, int, bool]] = ()
    keeps: bool = False
    error: BaseException | None = None


Request: TypeAlias = Task | Drop | Hurry | Anew | StatesRequest


def write(updates: Sequence[Update], out: FloatVector) -> None:
    """Write updates of together at most n entries into memory of 2·n: values, and then indices."""
    indices, end = out[len(out) // 2 :].view(np.uint32), 0
    for update in updates:
        begin, end = end, end + len(update.values)
        out[begin:end] = update.values
        if isinstance(update, SparseUpdate):
            indices[begin:end] = update.indices


def read(parts: Sequence[tuple[int, int, bool]], out: FloatVector) -> list[tuple[int, Update]]:
    """Return each part's bytes, and its update as ``write`` has written it, without a copy."""
    indices, end, found = out[len(out) // 2 :].view(np.uint32), 0, []
    for size, entries, is_sparse in parts:
        begin, end = end, end + entries
        values = out[begin:end]
        update = SparseUpdate(indices[begin:end], values) if is_sparse else DenseUpdate(values)
        found.append((size, update))
    return found


class Work(NamedTuple):
    """The state with which each process of a pool begins.

    Attributes:
        computations: by the workers' numbers, as they are at the fork.
        learner: computes all gradients; each process has its own copy of its memory.
        loads_always: True if the parameters in the learner may be others although parts are equal: a
            computation changes them, or parts do.
        memory: shared by all of them.
    """

    computations: list[Computation]
    cut: Sequence[Slice]
    learner: Learner
    loads_always: bool
    new_incarnation: Callable[[int, int], Computation]
    memory: SharedMemory


class _Calculator:
    """Does the tasks of one process."""

    def __init__(self, work: Work, inbox: Connection, outbox: Connection) -> None:
        self._work, self._inbox, self._outbox = work, inbox, outbox
        self._tasks: deque[Task] = deque()
        self._loaded: Sequence[object] = ()
        # The workers' states before their tasks, by the tasks' numbers.
        self._before: dict[int, dict[int, Any]] = {}
        self._keeping: set[int] = set()
        self._ready = select.poll()
        self._ready.register(inbox, select.POLLIN)

    def serve(self) -> None:
        """Do tasks until no one can send any."""
        while True:
            while not self._tasks or self._ready.poll(0):
                self._take(pickle.loads(self._inbox.recv_bytes()))
            self._tell(self._answer(self._tasks.popleft()))

    def _tell(self, answer: object) -> None:
        self._outbox.send_bytes(pickle.dumps(answer))

    def _take(self, request: Request) -> None:
        match request:
            case Task():
                self._tasks.append(request)
            case Drop(number, worker):
                self._drop(number, worker)
            case Hurry(number):
                self._hurry(number)
            case Anew(worker, incarnation):
                self._work.computations[worker] = self._work.new_incarnation(worker, incarnation)
                self._before.pop(worker, None)
                self._keeping.discard(worker)
            case StatesRequest(oldest):
                self._tell({one: self._state(one, oldest.get(one)) for one in self._keeping})

    def _hurry(self, number: int) -> None:
        """Move a worker's tasks up to one of them to the front."""
        wanted = next((task for task in self._tasks if task.number == number), None)
        if wanted is not None:
            first = [
                one for one in self._tasks if one.worker == wanted.worker and one.number <= number
            ]
            others = [one for one in self._tasks if one not in first]
            self._tasks = deque([*first, *others])

    def _drop(self, number: int, worker: int) -> None:
        # Its parameters may have been overwritten while they were loaded.
        self._loaded = ()
        for task in self._tasks:
            if task.number == number:
                self._tasks.remove(task)
                self._tell(TaskResult(number))
                return
        before = self._before.get(worker, {})
        if number in before:
            self._work.computations[worker].restore_kept(before[number])
            self._before[worker] = {one: kept for one, kept in before.items() if one < number}

    def _state(self, worker: int, oldest: int | None) -> State:
        before = self._before.get(worker, {})
        if oldest in before:
            kept: State = before[oldest]
            return kept
        return self._work.computations[worker].kept()

    def _answer(self, task: Task) -> TaskResult:
        own = self._work.computations[task.worker]
        before = copy.deepcopy(own.kept())
        earlier = self._before.get(task.worker, {})
        kept = {one: state for one, state in earlier.items() if one >= task.oldest}
        self._before[task.worker] = {**kept, task.number: before}
        try:
            loss, parts = self._compute(own, task)
        except BaseException as error:  # a plug-in may raise anything, or call sys.exit
            own.restore_kept(before)
            return TaskResult(task.number, error=_sendable(error))
        if keeps := own.keeps:
            self._keeping.add(task.worker)
        return TaskResult(task.number, loss, parts, keeps)

    def _compute(self, own: Computation, task: Task) -> tuple[float, list[tuple[int, int, bool]]]:
        work = self._work
        if task.parts and (work.loads_always or self._loaded != task.parts):
            for place, (of, _) in zip(task.places, task.parts, strict=True):
                one = work.cut[of]
                one.put(work.memory.at(place, one.size), work.learner.parameters)
            self._loaded = task.parts
        gradient, loss = own.gradient(work.learner, task.drawn, task.version)
        if not task.drawn.leg.pushes:
            return loss, []
        measured = own.measure(gradient)
        out = work.memory.at(task.out, 2 * len(gradient))
        write([update for _, update in measured], out)
        parts = [
            (size, len(update.values), isinstance(update, SparseUpdate))
            for size, update in measured
        ]
        return loss, parts


def _sendable(error: BaseException) -> BaseException:
    """Return an error with its traceback as a note, or one with the same text that can be sent."""
    place = nearest_place(error)
    told = "".join(traceback.format_exception(error))[-_TOLD:]
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # its class may be local, or take other arguments than it has
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(told)
    send_place(error, place)
    return error


def fork(work: Work, others: Sequence[Connection]) -> tuple[int, Connection, Connection]:
    """Fork a process that does tasks.

    A forked child has only the forking thread. Of the others' locks it takes none: it computes, in one
    thread, and writes to its pipe.

    Args:
        others: the ends of the pipes of earlier processes, which it closes.

    Returns:
        Its process id, the end that takes its requests, and the end that has its answers.
    """
    inbox, requests = os.pipe2(os.O_CLOEXEC)
    answers, outbox = os.pipe2(os.O_CLOEXEC)
    parent = os.getpid()
    # One that came to the child before it ignores them would be written to the parent's descriptor, as
    # another one for the parent.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(inbox)
        os.close(outbox)
        return pid, Connection(requests, readable=False), Connection(answers, writable=False)
    status = 1
    try:
        die_with_parent(signal.SIGKILL, parent)
        signal.set_wakeup_fd(-1)
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)  # the parent answers for all, and ends it
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(requests)
        os.close(answers)
        for one in others:
            one.close()
        reading, writing = Connection(inbox, writable=False), Connection(outbox, readable=False)
        with contextlib.suppress(EOFError, BrokenPipeError):
            _Calculator(work, reading, writing).serve()
        status = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(status)
