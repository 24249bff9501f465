"""The fast selection equals sorting everything, ties and special values included."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.algorithms.selection import Largest, kept
from tests.many_examples import many


def by_sorting(values: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.intp]:
    magnitude = np.where(np.isnan(values), np.inf, np.abs(values))
    rank = np.lexsort((np.arange(len(values)), -magnitude, ~np.isnan(values)))
    return np.sort(rank[:count])


few_values = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, np.inf, -np.inf, np.nan])


@given(st.lists(few_values, min_size=1, max_size=60), st.data())
def test_the_selection_equals_sorting_with_many_ties(
    values: list[float], data: st.DataObject
) -> None:
    vector = np.array(values, np.float32)
    count = data.draw(st.integers(1, len(vector)))
    assert Largest(len(vector), count)(vector).tolist() == by_sorting(vector, count).tolist()


@pytest.mark.parametrize("law", ["normal", "heavy", "mostly zero", "sorted", "constant", "nan"])
@pytest.mark.parametrize("ratio", [0.0001, 0.001, 0.01, 0.1, 0.5, 0.999])
def test_the_selection_equals_sorting_on_a_large_tensor(law: str, ratio: float) -> None:
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


def test_the_counts_for_the_paper_s_model_are_known() -> None:
    sizes = (288, 32, 9216, 32, 200_704, 128, 1280, 10)
    assert sum(kept(0.01, size) for size in sizes) == 2117
    assert sum(kept(0.1, size) for size in sizes) == 21_166
    assert sum(kept(0.001, size) for size in sizes) == 215


@pytest.mark.parametrize(("ratio", "size", "count"), [(0.29, 100, 29), (0.07, 100, 7), (1, 5, 5)])
def test_the_count_is_exact_despite_binary_fractions(ratio: float, size: int, count: int) -> None:
    assert kept(ratio, size) == count


SPECIAL = np.array(
    [0, 1, 0x007FFFFF, 0x00800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000],
    np.uint32,
)
"""Bits of magnitudes: 0, the smallest and largest denormals, the smallest and another normal (1),
the largest, infinity, two NaNs."""


@many(60)
@given(
    size=st.sampled_from([4096, 4097, 9216, 131_072, 131_073, 200_704]),
    ratio=st.sampled_from([0.0001, 0.001, 0.01, 0.1, 0.9]),
    seed=st.integers(0, 2**32 - 1),
    special=st.sampled_from([0.0, 0.001, 0.5, 1.0]),
    zeros=st.sampled_from([0.0, 0.5, 0.995, 1.0]),
    levels=st.sampled_from([2, 100, 2**31]),
)
def test_the_selection_equals_sorting_the_bits(  # noqa: PLR0917 - what a vector is made of
    size: int, ratio: float, seed: int, special: float, zeros: float, levels: int
) -> None:
    """Try any bits, both signs, few and many ties, and sizes on both sides of each limit."""
    draw = np.random.default_rng(seed)
    magnitude = draw.integers(0, levels, size, dtype=np.uint32) % np.uint32(2**31)
    magnitude += np.uint32(0x38D1B717 if levels < 2**31 else 0)
    chosen = draw.random(size) < special
    magnitude[chosen] = draw.choice(SPECIAL, int(chosen.sum()))
    magnitude[draw.random(size) < zeros] = 0
    bits = magnitude | draw.integers(0, 2, size, dtype=np.uint32) << np.uint32(31)
    count = kept(ratio, size)
    wanted = np.sort(np.argsort(-magnitude.astype(np.int64), kind="stable")[:count])
    assert np.array_equal(Largest(size, count)(bits.view(np.float32)), wanted)


def test_few_candidates_remain_in_a_matrix_with_dead_columns() -> None:
    """A sample of only some of the columns would rule out too few entries, or too many."""
    draw = np.random.default_rng(3)
    matrix = draw.normal(size=(128, 1568)).astype(np.float32)
    matrix[:, ::49] = 0  # the corner of each channel
    values, count = matrix.reshape(-1), kept(0.01, matrix.size)
    largest = Largest(matrix.size, count)
    threshold = largest._threshold(values.view(np.int32))
    survivors = np.count_nonzero(np.abs(values).view(np.int32) >= threshold)
    assert count <= survivors < 3 * count
