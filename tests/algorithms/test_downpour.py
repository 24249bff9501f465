"""Downpour: when workers push and fetch, and what they do in between."""

import itertools

import numpy as np
import pytest

from testbed.algorithms.downpour import Downpour, DownpourOptions
from testbed.algorithms.interface import Conditions
from testbed.algorithms.worker_half import Leg
from testbed.updates import DenseUpdate, Layout

ETA = 0.25
LAYOUT = Layout(("only",), (4,))
CONDITIONS = Conditions(learning_rate=ETA, workers=1, batch_size=1, updates=100)


@pytest.mark.parametrize(("push_every", "fetch_every"), [(1, 3), (2, 3), (4, 6), (6, 2)])
def test_legs_are_the_multiples_of_both_periods(push_every: int, fetch_every: int) -> None:
    legs = Downpour.legs(
        DownpourOptions(push_every=push_every, fetch_every=fetch_every), CONDITIONS
    )
    ends = list(itertools.accumulate(leg.gradients for leg in legs))
    assert ends[-1] == np.lcm(push_every, fetch_every)
    assert [end for end, leg in zip(ends, legs, strict=True) if leg.pushes] == list(
        range(push_every, ends[-1] + 1, push_every)
    )
    assert [end for end, leg in zip(ends, legs, strict=True) if leg.asks] == list(
        range(fetch_every, ends[-1] + 1, fetch_every)
    )


def test_by_default_every_gradient_is_pushed_and_followed_by_a_question() -> None:
    assert Downpour.legs(DownpourOptions(), CONDITIONS) == (Leg(),)


def test_every_gradient_is_pushed_once_and_moves_the_own_copy() -> None:
    half = Downpour.worker(DownpourOptions(push_every=2, fetch_every=3), LAYOUT, CONDITIONS)
    server = Downpour.server(DownpourOptions(), LAYOUT, np.zeros(4, np.float32), CONDITIONS)
    one, two, three = (np.full(4, value, np.float32) for value in (1, 2, 4))
    own = np.zeros(4, np.float32)
    half.local(0, own, one, 0)
    half.go_on(own, two, 0)  # the push of gradients 1 and 2, after which the worker goes on
    pushed = half.compress(two)
    assert isinstance(pushed, DenseUpdate)
    np.testing.assert_array_equal(pushed.values, 3)
    np.testing.assert_array_equal(own, -ETA * 3)
    assert server.push(0, pushed, 0) == 0
    half.local(0, own, three, 0)  # it asks after this one, and its copy is replaced
    pushed = half.compress(one)
    np.testing.assert_array_equal(pushed.values, 5)
    assert (
        server.push(0, pushed, 0) == 1
    )  # its own push before counts as a delay, and divides nothing
    np.testing.assert_array_equal(server.parameters, -ETA * 8)
