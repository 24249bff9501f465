"""EASGD: copies and the centre against the paper's two lines, and what is kept for a worker."""

from collections.abc import Iterator

import numpy as np
import pytest

from testbed.algorithms.easgd import Easgd, EasgdOptions
from testbed.algorithms.interface import Conditions
from testbed.algorithms.worker_half import Leg
from testbed.errors import SpecError
from testbed.updates import FloatVector, Layout

SIZE, WORKERS, ALPHA = 5, 3, 0.25
LAYOUT = Layout(("only",), (SIZE,))


def falling(version: int) -> float:
    """Return η: 0.5 / (1 + version)."""
    return 0.5 / (1 + version)


CONDITIONS = Conditions(
    learning_rate=0.5, workers=WORKERS, batch_size=1, updates=100, schedule=falling
)


def gradients(seed: int) -> Iterator[FloatVector]:
    draws = np.random.default_rng(seed)
    while True:
        yield draws.normal(size=SIZE).astype(np.float32)


@pytest.mark.parametrize("tau", [1, 3])
def test_copies_and_centre_are_those_of_the_equations(tau: int) -> None:
    options = EasgdOptions(exchange_every=tau, elasticity=ALPHA)
    server = Easgd.server(options, LAYOUT, np.ones(SIZE, np.float32), CONDITIONS)
    halves = [Easgd.worker(options, LAYOUT, CONDITIONS) for _ in range(WORKERS)]
    computed = gradients(1)
    # All begin at the centre, and the third worker only after the others have moved it.
    centre = np.ones(SIZE)
    copies: dict[int, np.ndarray] = {}
    base: dict[int, int] = {}
    for worker in (0, 1, 0, 0, 1, 2, 1, 2, 0, 2):
        if worker not in copies:
            base[worker] = server.pull(worker) or 0
            copies[worker] = centre.copy()
            np.testing.assert_allclose(server.outgoing(worker), centre, rtol=1e-5)
        own = server.outgoing(worker).copy()
        eta = falling(base[worker])
        for step in range(tau):
            g = next(computed)
            copies[worker] -= eta * g
            if step < tau - 1:
                halves[worker].local(step, own, g, base[worker])
                np.testing.assert_allclose(own, copies[worker], rtol=1e-4, atol=1e-6)
        delay = server.push(worker, halves[worker].compress(g), base[worker])
        assert delay == server.version - 1 - base[worker]
        e = ALPHA * (copies[worker] - centre)
        copies[worker] -= e
        centre += e
        base[worker] = server.pull(worker) or 0
        np.testing.assert_allclose(server.outgoing(worker), copies[worker], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(server.parameters, centre, rtol=1e-4, atol=1e-6)


def test_by_default_a_worker_moves_by_nine_tenths_over_n() -> None:
    options = EasgdOptions()
    assert Easgd.legs(options, CONDITIONS) == (Leg(),)
    server = Easgd.server(options, LAYOUT, np.zeros(SIZE, np.float32), CONDITIONS)
    half = Easgd.worker(options, LAYOUT, CONDITIONS)
    server.pull(0)
    server.outgoing(0)
    server.push(0, half.compress(np.full(SIZE, -2, np.float32)), 0)
    np.testing.assert_allclose(server.parameters, 0.9 / WORKERS, rtol=1e-6)


def test_a_worker_that_comes_back_begins_at_the_centre() -> None:
    options = EasgdOptions(elasticity=ALPHA)
    server = Easgd.server(options, LAYOUT, np.zeros(SIZE, np.float32), CONDITIONS)
    half = Easgd.worker(options, LAYOUT, CONDITIONS)
    server.pull(0)
    server.outgoing(0)
    server.push(0, half.compress(np.ones(SIZE, np.float32)), 0)
    assert not np.array_equal(server.outgoing(0), server.parameters)
    server.forget(0)
    server.joined(0)
    server.pull(0)
    np.testing.assert_array_equal(server.outgoing(0), server.parameters)


def test_gradients_of_a_dropped_computation_are_not_pushed() -> None:
    half = Easgd.worker(EasgdOptions(exchange_every=3), LAYOUT, CONDITIONS)
    own, one = np.zeros(SIZE, np.float32), np.ones(SIZE, np.float32)
    half.local(0, own, 8 * one, 0)
    half.local(0, own, one, 0)
    half.local(1, own, one, 0)
    np.testing.assert_array_equal(half.compress(one).values, 3)


def test_a_worker_waits_for_its_copy() -> None:
    with pytest.raises(SpecError, match="send_queue: a worker of easgd"):
        Easgd.check(EasgdOptions(send_queue=1), CONDITIONS)
