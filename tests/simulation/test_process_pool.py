"""The pool of processes by itself: order, states, errors, and ends."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import pytest

from testbed.algorithms.worker_half import WorkerHalf
from testbed.encoding_choice import EncodingChoice
from testbed.errors import RunError
from testbed.learning.data import datasets
from testbed.learning.data.batches import Batches
from testbed.learning.learner import Learner
from testbed.simulation import process_pool as pools
from testbed.simulation.batching import Begun
from testbed.simulation.pool_process import SharedMemory, Work, read, write
from testbed.simulation.process_pool import ProcessPool, processors
from testbed.simulation.sent_versions import SentVersions
from testbed.training.computation import Computation
from testbed.training.objective import PLAIN
from testbed.training.pushed_parts import PushedParts
from testbed.training.slices import slices
from testbed.updates import DenseUpdate, FloatVector, SparseUpdate, Update
from tests.settings import SIMPLE, with_changes

WORKERS = 3
DIGITS = datasets.load("digits", "standardised", 300, 1)


class Summing(WorkerHalf):
    """Pushes a weighted sum of all gradients so far, which depends on their order."""

    def __init__(self) -> None:
        self.total: FloatVector | None = None

    def compress(self, gradient: FloatVector) -> DenseUpdate:
        before = 0 if self.total is None else np.float32(0.5) * self.total
        self.total = (before + gradient).astype(np.float32)
        return DenseUpdate(self.total)


class Whole(WorkerHalf):
    def compress(self, gradient: FloatVector) -> DenseUpdate:
        return DenseUpdate(gradient)


class Faulty(WorkerHalf):
    def compress(self, gradient: FloatVector) -> DenseUpdate:
        raise LookupError("nothing is selected here")


class Killing(WorkerHalf):
    def compress(self, gradient: FloatVector) -> DenseUpdate:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


@dataclass
class Pooled:
    """A pool, computations like those in its processes, and what both compute with."""

    pool: ProcessPool
    versions: SentVersions
    own: list[Computation]
    learner: Learner
    initial: FloatVector

    def begin(self, worker: int, version: int = 0, **drawn: Any) -> Begun:
        """Begin a computation at parameters that depend on the version."""
        self.versions.hold((0, version), self.initial * np.float32(1 + version))
        begun = Begun(((0, version),), (version,), self.own[worker].draw(**drawn))
        self.pool.begin(worker, begun)
        return begun

    def result(self, worker: int, begun: Begun) -> bytes:
        ((size, update),), _ = self.pool.result(worker, begun)
        assert size == 4 * len(update.values)
        return update.values.tobytes()

    def expected(self, worker: int, begun: Begun) -> bytes:
        """Return what the same computation gives here, after those before it."""
        np.copyto(self.learner.parameters, self.initial * np.float32(1 + begun.versions[0]))
        gradient, _ = self.own[worker].gradient(self.learner, begun.drawn, begun.versions[0])
        ((_, update),) = self.own[worker].measure(gradient)
        return update.values.tobytes()


@contextlib.contextmanager
def pooled(half: Callable[[], WorkerHalf], number: int = 2) -> Iterator[Pooled]:
    learner = Learner("mlp", 10)
    memory, cut = SharedMemory(), slices(learner.layout, 1)
    parts = PushedParts(EncodingChoice(), cut)

    def computation(worker: int, incarnation: int = 0) -> Computation:
        draws = np.random.default_rng([worker, incarnation])
        return Computation(half(), Batches(DIGITS, np.arange(300), 10, draws), parts, PLAIN)

    def computations() -> list[Computation]:
        return [computation(worker) for worker in range(WORKERS)]

    versions = SentVersions(cut, memory.like)
    work = Work(computations(), cut, learner, False, computation, memory)
    pool = ProcessPool(number, work, versions)
    initial = np.random.default_rng(1).normal(0, 0.1, learner.layout.total).astype(np.float32)
    try:
        yield Pooled(pool, versions, computations(), learner.twin(), initial)
    finally:
        pool.close()


@pytest.mark.parametrize("half", [Summing, Whole])
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 2, 0]])
def test_results_are_those_of_the_order_in_which_they_are_used(
    half: type[WorkerHalf], order: Sequence[int]
) -> None:
    with pooled(half) as one:
        begun = [one.begin(0, version) for version in range(3)]
        others = [one.begin(1, version) for version in range(3)]
        for number in order:
            assert one.result(0, begun[number]) == one.expected(0, begun[number])
        for other in others:
            assert one.result(1, other) == one.expected(1, other)
        assert not len(one.versions)


@pytest.mark.parametrize("half", [Summing, Whole])
@pytest.mark.parametrize("is_computed", [False, True])
def test_what_is_dropped_leaves_no_trace(half: type[WorkerHalf], is_computed: bool) -> None:
    with pooled(half) as one:
        first, dropped, third = (one.begin(0, version) for version in range(3))
        if is_computed:  # the last one, and so all before it
            one.pool.kept()
            after = one.begin(0, 3)
            one.pool.drop(after)
        one.pool.drop(dropped)
        one.pool.drop(dropped)
        for begun in (first, third):
            assert one.result(0, begun) == one.expected(0, begun)
        later = one.begin(0, 4)
        assert one.result(0, later) == one.expected(0, later)


def test_states_are_those_before_what_is_not_used_yet() -> None:
    with pooled(Summing) as one:
        begun = [one.begin(0, version) for version in range(3)]
        # The first may have been computed, but is not used: the state before it is the first one.
        assert one.pool.kept().get(0, one.own[0].kept()) == one.own[0].kept()
        for number in range(3):
            one.result(0, begun[number])
            one.expected(0, begun[number])
            kept, expected = one.pool.kept()[0], one.own[0].kept()
            assert kept["half"]["total"].tobytes() == expected["half"]["total"].tobytes()


def test_a_worker_that_was_killed_begins_without_a_state() -> None:
    with pooled(Summing) as one:
        one.result(0, one.begin(0))
        one.pool.begin_anew(0, 1)
        assert one.pool.kept() == {}
        begun = one.begin(0)
        assert one.result(0, begun) == one.expected(0, begun)


def test_many_long_tasks_wait_without_a_deadlock() -> None:
    with pooled(Whole, number=1) as one:
        begun = [one.begin(worker % WORKERS) for worker in range(1000)]
        for draws in begun[:2]:
            draws.drawn.batches[0].moves = np.zeros((50_000, 3), np.int64)  # longer than a pipe
        long = [one.begin(0), one.begin(1)]
        for worker, one_begun in enumerate(begun):
            assert len(one.result(worker % WORKERS, one_begun)) == one.initial.nbytes
        for worker, one_begun in enumerate(long):
            one.result(worker, one_begun)


def test_an_error_is_raised_where_the_result_is_used_with_its_traceback() -> None:
    with pooled(Faulty) as one:
        begun = one.begin(0)
        one.pool.drop(one.begin(0, 1))
        with pytest.raises(LookupError, match="nothing is selected here") as raised:
            one.result(0, begun)
    assert "in compress" in "".join(raised.value.__notes__)


def test_a_process_that_is_killed_is_named_and_leaves_nothing() -> None:
    before = psutil.Process().children()
    with pooled(Killing) as one:
        begun = one.begin(0)
        with pytest.raises(
            RunError, match="a process that computes gradients was killed by SIGKILL"
        ):
            one.result(0, begun)
    assert psutil.Process().children() == before  # those that have ended and wait are children, too


def test_updates_are_read_as_they_were_written() -> None:
    out = np.empty(20, np.float32)
    sparse = SparseUpdate(np.array([1, 2**31, 7], np.uint32), np.array([1, 2, 3], np.float32))
    updates: list[Update] = [sparse, DenseUpdate(np.arange(6, dtype=np.float32)), sparse]
    updates[2] = SparseUpdate(np.array([4], np.uint32), np.array([-1], np.float32))
    write(updates, out)
    found = read([(9, 3, True), (8, 6, False), (7, 1, True)], out)
    assert [size for size, _ in found] == [9, 8, 7]
    for (_, one), other in zip(found, updates, strict=True):
        assert type(one) is type(other)
        assert one.values.tobytes() == other.values.tobytes()
        if isinstance(one, SparseUpdate) and isinstance(other, SparseUpdate):
            assert one.indices.tobytes() == other.indices.tobytes()


def test_a_run_chooses_a_pool_if_its_gradients_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    monkeypatch.setattr(pools, "LEAST", 0.0)
    learner = Learner("mlp", 10)
    before = learner.parameters.copy()

    def chosen(**changes: Any) -> int:
        run = with_changes(SIMPLE, **{"workers": 3, "updates": 10**9, **changes})
        return processors(run, learner, before, DIGITS)

    assert chosen() == 3
    assert chosen(workers=1) == 1
    assert chosen(workers=9) == 4
    assert chosen(share=2) == 2
    assert chosen(share=1) == 1
    assert chosen(updates=100) == 1
    assert chosen(updates=1, processors=7, share=1) == 7
    assert chosen(batched=True) == 1
    monkeypatch.setattr(pools, "LEAST", 1.0)
    assert chosen() == 1
