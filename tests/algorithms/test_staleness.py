"""The servers of AdaComp and ASGD against the equations, written naively over all updates."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.algorithms.adacomp import AdaptiveStaleness
from testbed.algorithms.asgd import StalenessDivided
from testbed.algorithms.server_half import ServerHalf
from testbed.updates import DenseUpdate, SparseUpdate, Update

SIZE = 7
ALPHA = 0.1


@dataclass(frozen=True)
class Push:
    worker: int
    indices: tuple[int, ...]
    values: tuple[float, ...]
    dense: bool


pushes = st.builds(
    lambda worker, indices, values, dense: Push(
        worker, tuple(range(SIZE)) if dense else tuple(sorted(indices)), tuple(values), dense
    ),
    st.integers(0, 3),
    st.sets(st.integers(0, SIZE - 1)),
    st.lists(st.sampled_from([0.0, 1.0, -2.0, 0.25]), min_size=SIZE, max_size=SIZE),
    st.booleans(),
)


def update_of(push: Push) -> Update:
    values = np.array(push.values[: len(push.indices)], np.float32)
    if push.dense:
        return DenseUpdate(values)
    return SparseUpdate(np.array(push.indices, np.uint32), values)


def delta(push: Push, k: int) -> float:
    """Return Δθ_k of a push."""
    return push.values[push.indices.index(k)] if k in push.indices else 0.0


def version_of(server: ServerHalf, worker: int) -> int:
    version = server.pull(worker)
    assert version is not None
    return version


def replay(server: ServerHalf, schedule: list[Push]) -> list[tuple[Push, int]]:
    """Push the schedule, each worker pulling first and after its pushes; return pushes with bases."""
    base = {worker: version_of(server, worker) for worker in range(4)}
    history = []
    for push in schedule:
        history.append((push, base[push.worker]))
        assert server.push(push.worker, update_of(push), base[push.worker]) == (
            len(history) - 1 - base[push.worker]
        )
        base[push.worker] = version_of(server, push.worker)
    return history


@given(st.lists(pushes, max_size=40))
def test_adacomp_follows_equations_3_to_5(schedule: list[Push]) -> None:
    server = AdaptiveStaleness(np.zeros(SIZE, np.float32), ALPHA)
    history = replay(server, schedule)
    theta = np.zeros(SIZE, np.float32)
    for i, (push, j) in enumerate(history):
        for k, value in zip(push.indices, push.values, strict=False):
            sigma_k = sum(delta(history[u][0], k) != 0 for u in range(j, i))  # equation 3
            alpha_k = np.float32(ALPHA) / np.float32(sigma_k if sigma_k else 1)  # equation 5
            theta[k] -= alpha_k * np.float32(value)  # equation 4
    assert np.array_equal(server.parameters, theta)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize(
    ("values", "sigma"), [((0, 0), 1), ((0, 1), 1), ((1, 1), 2), ((-0.0, np.nan), 1)]
)
def test_an_entry_of_value_0_does_not_count(
    values: tuple[float, float], sigma: int, dense: bool
) -> None:
    """(3) has the indicator of Δθ_k ≠ 0; NaN is not 0, and -0 is."""
    server = AdaptiveStaleness(np.zeros(SIZE, np.float32), ALPHA)
    for worker in range(3):
        server.pull(worker)
    for worker, value in enumerate(values):
        server.push(worker, one_entry(value, dense), 0)
    server.parameters[:] = 0
    server.push(2, one_entry(1, dense), 0)
    assert server.parameters[1] == -np.float32(ALPHA) / np.float32(sigma)


def one_entry(value: float, dense: bool) -> Update:
    if dense:
        return DenseUpdate(np.array([0, value, *[0] * (SIZE - 2)], np.float32))
    return SparseUpdate(np.array([1], np.uint32), np.array([value], np.float32))


@given(st.lists(pushes, max_size=40))
def test_asgd_divides_by_the_delay(schedule: list[Push]) -> None:
    server = StalenessDivided(np.zeros(SIZE, np.float32), ALPHA)
    history = replay(server, schedule)
    theta = np.zeros(SIZE)
    for i, (push, j) in enumerate(history):
        for k, value in zip(push.indices, push.values, strict=False):
            theta[k] -= ALPHA / max(1, i - j) * value
    assert np.allclose(server.parameters, theta, rtol=1e-5, atol=1e-6)


def test_adacomp_refuses_a_push_whose_base_was_not_pulled_last() -> None:
    server = AdaptiveStaleness(np.zeros(SIZE, np.float32), ALPHA)
    one = DenseUpdate(np.ones(SIZE, np.float32))
    server.pull(0)
    server.push(0, one, 0)
    with pytest.raises(ValueError, match="not the version that it pulled last"):
        server.push(0, one, 0)
    with pytest.raises(ValueError, match="not between"):
        server.push(0, one, 2)
    assert server.version == 1


def test_adacomp_keeps_one_copy_of_each_outstanding_version() -> None:
    server = AdaptiveStaleness(np.zeros(SIZE, np.float32), ALPHA)
    for worker in range(200):
        server.pull(worker)
    assert len(server._at_pull) == 1
    one = DenseUpdate(np.ones(SIZE, np.float32))
    for _ in range(50):
        server.push(0, one, server.version)
        server.pull(0)
    assert len(server._at_pull) == 2
    for worker in range(200):
        server.forget(worker)
    assert len(server._at_pull) == 0
    assert len(server._at_pull._copies._spare) == 2


def test_counters_wrap_without_harm() -> None:
    server = AdaptiveStaleness(np.zeros(SIZE, np.float32), ALPHA)
    server._contained[:] = np.uint32(2**32 - 1)
    one = DenseUpdate(np.ones(SIZE, np.float32))
    server.pull(0)
    server.pull(1)
    server.push(0, one, 0)
    server.pull(0)
    server.push(0, one, 1)
    server.push(1, one, 0)  # two updates since its pull: half a step
    assert np.allclose(server.parameters, -ALPHA * 2.5)


@given(st.lists(pushes, max_size=40))
def test_adacomp_follows_equation_3_for_workers_that_are_a_pull_ahead(
    schedule: list[Push],
) -> None:
    """Such a worker pulls before it pushes for the version that it pulled before."""
    server = AdaptiveStaleness(np.zeros(SIZE, np.float32), ALPHA, overlaps=True)
    before = {push.worker: version_of(server, push.worker) for push in schedule}
    theta, history = np.zeros(SIZE, np.float32), list[Push]()
    for push in schedule:
        base, before[push.worker] = before[push.worker], version_of(server, push.worker)
        server.push(push.worker, update_of(push), base)
        for k, value in zip(push.indices, push.values, strict=False):
            sigma_k = sum(delta(one, k) != 0 for one in history[base:])
            theta[k] -= (
                np.float32(ALPHA) / np.float32(sigma_k if sigma_k else 1) * np.float32(value)
            )
        history.append(push)
    assert np.array_equal(server.parameters, theta)
