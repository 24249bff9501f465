"""Random streams are named, independent and repeatable; durations have the mean they promise."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from testbed.durations import LAWS
from testbed.streams import stream


def test_same_name_same_numbers_and_other_names_others() -> None:
    def draw(seed: int, purpose: str, device: int) -> list[int]:
        return [int(x) for x in stream(seed, purpose, device).integers(0, 2**62, 4)]

    assert draw(1, "waiting", 3) == draw(1, "waiting", 3)
    keys = [(1, "waiting", 3), (1, "waiting", 4), (1, "batches", 3), (2, "waiting", 3), (1, "w", 0)]
    assert len({tuple(draw(*key)) for key in keys}) == len(keys)


def test_a_stream_is_what_it_was() -> None:
    """Results of seeds that people have published depend on these numbers."""
    assert stream(1, "waiting", 0).integers(0, 1000, 4).tolist() == [259, 325, 458, 938]


@pytest.mark.parametrize(
    ("law", "reference"),
    [("uniform", stats.uniform(0, 0.1)), ("exponential", stats.expon(scale=0.05))],
)
def test_laws_are_scipys(law: str, reference: Any) -> None:
    draws = stream(5, "test")
    sample = [LAWS[law](0.05).sample(draws) for _ in range(20_000)]
    assert stats.kstest(sample, reference.cdf).pvalue > 0.001
    assert np.mean(sample) == pytest.approx(0.05, rel=0.03)


def test_constant_is_constant_and_no_mean_is_no_waiting() -> None:
    draws = stream(5, "test")
    assert LAWS["constant"](0.05).sample(draws) == 0.05
    assert all(law(0.0).sample(draws) == 0.0 for law in LAWS.values())
