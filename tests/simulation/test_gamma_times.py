"""Gamma-distributed times by the virtual clock: how fast workers are with and without waiting for all.

That they have the tails of paper 002's Figure 3 is tested in ``tests/durations/test_laws.py``.
"""

import pytest
from scipy import integrate, stats

from bench.gamma_times import MEAN, rate

WORKERS, TASKS = 16, 40


def test_without_waiting_workers_are_n_times_as_fast_and_with_it_as_fast_as_the_slowest() -> None:
    asynchronous = rate("momentum-asgd", WORKERS, 0.0, TASKS, seed=1) * MEAN
    synchronous = rate("sync-sgd", WORKERS, 0.0, TASKS, seed=1) * MEAN
    assert asynchronous == pytest.approx(WORKERS, rel=0.03)
    # An update takes the longest of n gamma-distributed times: the integral of 1 − F(t)^n.
    law = stats.gamma(100, scale=1 / 100)
    longest, _ = integrate.quad(lambda t: 1 - law.cdf(t) ** WORKERS, 0, 3)
    assert synchronous == pytest.approx(WORKERS / longest, rel=0.03)


def test_synchronous_workers_are_as_fast_as_the_slowest_machine() -> None:
    asynchronous, synchronous = (
        rate(kind, WORKERS, 0.6, 10, seed=2) for kind in ("momentum-asgd", "sync-sgd")
    )
    assert 2 < asynchronous / synchronous < 6
