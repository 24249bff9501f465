"""Pull by TensorFlow's tokens (paper 004, footnote 3), against a queue written naively."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.algorithms.interface import Conditions
from testbed.algorithms.server_half import UnexpectedMessageError
from testbed.algorithms.tokens import SynchronousByTokens, TokenOptions, TokenServer
from testbed.errors import SpecError
from testbed.updates import DenseUpdate, Layout

ETA = 0.25


def server(n: int, k: int) -> TokenServer:
    half = TokenServer(np.zeros(1, np.float32), ETA, k, n)
    for worker in range(n):
        half.joined(worker)
    return half


def gradient(value: float = 1.0) -> DenseUpdate:
    return DenseUpdate(np.array([value], np.float32))


@settings(deadline=None)  # the host may be busy
@given(st.integers(1, 5), st.data())
def test_the_oldest_token_says_to_which_version_a_gradient_belongs(
    n: int, data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, n))
    half, version, w = server(n, k), 0, 0.0
    queue, held, sent, gathered = deque([0] * n), dict[int, int](), dict[int, int](), list[float]()
    for _ in range(data.draw(st.integers(0, 60))):
        worker = data.draw(st.integers(0, n - 1))
        if worker not in held:
            answer = half.pull(worker)
            assert answer == (version if queue else None)
            if queue:
                held[worker], sent[worker] = queue.popleft(), version
        elif data.draw(st.integers(0, 9)) == 0:
            half.forget(worker)
            queue.appendleft(held.pop(worker))
            half.joined(worker)
        else:
            value = data.draw(st.floats(-4, 4, width=32))
            delay = half.push(worker, gradient(value), sent[worker])
            if held.pop(worker) < version:
                assert delay is None
                continue
            assert delay == 0
            gathered.append(value)
            if len(gathered) == k:
                w, version = w - ETA * float(np.mean(gathered)), version + 1
                gathered.clear()
                queue.extend([version] * n)
        assert half.version == version
    np.testing.assert_allclose(half.parameters, [w], rtol=1e-5, atol=1e-5)


def test_a_fast_worker_makes_several_gradients_of_a_version() -> None:
    half = server(4, 3)
    for _ in range(3):
        assert half.pull(0) == half.version == 0
        assert half.push(0, gradient(), 0) == 0
    assert half.version == 1


def test_a_token_that_is_left_over_costs_a_gradient_of_newer_parameters() -> None:
    """As the footnote says: a computation that is already known to be useless."""
    half = server(3, 2)
    for worker in (0, 1):
        half.pull(worker)
        half.push(worker, gradient(), 0)
    assert half.pull(2) == 1  # with the third token of version 0
    assert half.push(2, gradient(), 1) is None
    assert half.diagnose() == {"k": 2, "late": 0}
    half.pull(2)
    assert half.push(2, gradient(), 1) == 0
    half.pull(2)
    half.push(2, gradient(), 1)
    assert half.diagnose() == {"k": 2, "late": 1}


def test_an_update_costs_n_gradients_in_the_end() -> None:
    half, gradients = server(8, 3), 0
    while half.version < 100:
        for worker in range(8 if gradients % 5 == 0 else 2):  # most are slow
            if (base := half.pull(worker)) is not None:
                half.push(worker, gradient(), base)
                gradients += 1
    assert gradients == pytest.approx(100 * 8, rel=0.02)


def test_a_worker_without_a_token_waits_and_must_not_push() -> None:
    half = server(1, 1)
    half.joined(1)
    assert half.pull(0) == 0
    assert half.pull(1) is None
    with pytest.raises(UnexpectedMessageError, match="worker 1, which has no token"):
        half.push(1, gradient(), 0)
    half.push(0, gradient(), 0)
    assert half.pull(1) == 1


def test_the_token_of_a_lost_worker_is_given_to_another_one() -> None:
    half = server(2, 2)
    assert half.pull(0) == half.pull(1) == 0
    half.forget(1)
    half.push(0, gradient(), 0)
    assert half.pull(0) == 0
    assert half.push(0, gradient(), 0) == 0
    assert half.version == 1


def test_k_of_n_as_the_file_has_it() -> None:
    n = Conditions(ETA, 4, 10, 100)
    options = TokenOptions(wait_for=2, rate_rule="proportional")
    half = SynchronousByTokens.server(options, Layout(("w",), (1,)), np.zeros(1, np.float32), n)
    for _ in range(2):
        half.pull(0)
        half.push(0, gradient(), 0)
    assert half.parameters.tolist() == [-ETA / 2]
    with pytest.raises(SpecError, match="sync-tokens: wait_for is 5, and there are only 4"):
        SynchronousByTokens.check(TokenOptions(wait_for=5), n)
