"""The fast selection equals sorting everything, ties and special values included."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.algorithms.selection import Largest, kept


def by_sorting(values: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.intp]:
    magnitude = np.where(np.isnan(values), np.inf, np.abs(values))
    rank = np.lexsort((np.arange(len(values)), -magnitude, ~np.isnan(values)))
    return np.sort(rank[:count])


few_values = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, np.inf, -np.inf, np.nan])


@given(st.lists(few_values, min_size=1, max_size=60), st.data())
def test_equals_sorting_with_many_ties(values: list[float], data: st.DataObject) -> None:
    vector = np.array(values, np.float32)
    count = data.draw(st.integers(1, len(vector)))
    assert Largest(len(vector), count)(vector).tolist() == by_sorting(vector, count).tolist()


@pytest.mark.parametrize("law", ["normal", "heavy", "mostly zero", "sorted", "constant", "nan"])
@pytest.mark.parametrize("ratio", [0.0001, 0.001, 0.01, 0.1, 0.5, 0.999])
def test_equals_sorting_on_a_large_tensor(law: str, ratio: float) -> None:
    draw = np.random.default_rng(7)
    size = 150_001
    vector = {
        "normal": draw.normal(size=size),
        "heavy": draw.standard_cauchy(size),
        "mostly zero": draw.normal(size=size) * (draw.random(size) < 0.005),
        "sorted": np.sort(draw.normal(size=size)),
        "constant": np.ones(size),
        "nan": np.where(draw.random(size) < 0.01, np.nan, draw.normal(size=size)),
    }[law].astype(np.float32)
    count = kept(ratio, size)
    assert np.array_equal(Largest(size, count)(vector), by_sorting(vector, count))


def test_counts_of_the_papers_model() -> None:
    sizes = (288, 32, 9216, 32, 200_704, 128, 1280, 10)
    assert sum(kept(0.01, size) for size in sizes) == 2117
    assert sum(kept(0.1, size) for size in sizes) == 21_166
    assert sum(kept(0.001, size) for size in sizes) == 215


@pytest.mark.parametrize(("ratio", "size", "count"), [(0.29, 100, 29), (0.07, 100, 7), (1, 5, 5)])
def test_count_is_not_lost_to_binary_fractions(ratio: float, size: int, count: int) -> None:
    assert kept(ratio, size) == count
