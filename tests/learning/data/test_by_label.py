"""Pathological and inner-Dirichlet parts, and the sizes of linear and exponential ones."""

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from testbed.errors import SpecError
from testbed.learning.data.by_label import Assignment, inner_dirichlet, pathological
from testbed.learning.data.partitions import parts

Labels = npt.NDArray[np.int64]


def labels_of(images: int, classes: int = 10, seed: int = 0) -> Labels:
    return np.random.default_rng(seed).integers(0, classes, images)


def alike(one: list[npt.NDArray[np.int64]], other: list[npt.NDArray[np.int64]]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@given(
    st.integers(1, 40),
    st.integers(1, 6),
    st.sampled_from(["random", "deterministic", "first-deterministic"]),
    st.integers(0, 99),
)
def test_pathological_parts_have_exactly_their_classes(
    devices: int, classes: int, assignment: Assignment, seed: int
) -> None:
    labels = 3 * np.repeat(np.arange(6), devices + seed % 5)  # 0, 3, 6, …: not numbered one by one
    found = pathological(labels, devices, classes, assignment, seed)
    own = [sorted(set(labels[part].tolist())) for part in found]
    assert [len(one) for one in own] == [classes] * devices
    together = np.concatenate(found)
    assert len(set(together.tolist())) == len(together)
    used = {label for one in own for label in one}
    assert len(together) == np.isin(labels, list(used)).sum()
    for label in used:  # shared out evenly
        counts = [int((labels[part] == label).sum()) for part in found]
        counts = [count for count in counts if count]
        assert max(counts) - min(counts) <= 1
    if assignment == "deterministic":
        assert own == [sorted(3 * ((i + k) % 6) for k in range(classes)) for i in range(devices)]
    if assignment == "first-deterministic":
        assert all(3 * (i % 6) in one for i, one in enumerate(own))
    assert alike(found, pathological(labels, devices, classes, assignment, seed))


def test_impossible_classes_are_refused() -> None:
    labels = np.repeat(np.arange(10), 5)
    with pytest.raises(
        SpecError, match="11 for each worker, and the training images have 10: use 10"
    ):
        pathological(labels, 4, 11, "random", 1)
    few = np.array([0] * 50 + [1] * 3)
    with pytest.raises(
        SpecError, match="8 workers have the class 1, of which there are 3 training"
    ):
        pathological(few, 8, 2, "deterministic", 1)


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=12),
    st.sampled_from([1e-9, 1e-4, 0.1, 1.0, 1e3, 1e9]),
    st.integers(0, 40),
    st.integers(1, 12),
    st.integers(0, 99),
)
def test_inner_dirichlet_parts_have_their_sizes(
    sizes: list[int], alpha: float, more: int, classes: int, seed: int
) -> None:
    labels = labels_of(sum(sizes) + more, classes, seed)
    found = inner_dirichlet(labels, sizes, alpha, seed)
    assert [len(part) for part in found] == sizes
    together = np.concatenate(found)
    assert len(set(together.tolist())) == len(together)
    assert together.min() >= 0
    assert together.max() < len(labels)
    assert alike(found, inner_dirichlet(labels, sizes, alpha, seed))
    with pytest.raises(SpecError, match="add up to"):
        inner_dirichlet(labels, [*sizes, more + 1], alpha, seed)


def test_a_mixture_goes_from_one_label_to_all_alike() -> None:
    labels = np.repeat(np.arange(10), 1000)
    one = inner_dirichlet(labels, [50] * 20, 1e-9, 1)  # no label is used up: 1,000 for 20 · 50
    assert [len(set(labels[part].tolist())) for part in one] == [1] * 20
    all_alike = inner_dirichlet(labels, [500] * 10, 1e9, 1)
    counts = np.array([np.bincount(labels[part], minlength=10) for part in all_alike])
    # Binomial(500, 1/10) has the deviation 6.7.
    assert abs(counts - 50).max() < 5 * 6.7


def test_mixtures_have_the_variance_of_dirichlet_s_law() -> None:
    """Var p = (K − 1) / (K² (K·α + 1)); with s images besides (1 − Σ p²) / (K·s) of sampling."""
    labels, alpha, size = np.repeat(np.arange(10), 20_000), 0.5, 100
    found = inner_dirichlet(labels, [size] * 1000, alpha, 1)
    shares = np.array([np.bincount(labels[part], minlength=10) / size for part in found])
    of_law = 9 / (100 * (10 * alpha + 1))
    sampling = (1 / 10 - 1 / 100 - of_law) / size
    assert shares.var() == pytest.approx(of_law + sampling, rel=0.1)


@pytest.mark.parametrize("kind", ["dirichlet", "inner-dirichlet"])
@pytest.mark.parametrize("alpha", [1e-9, 1e-6, 1e-3, 0.05, 0.5, 1e3, 1e6, 1e9])
def test_every_alpha_ends_within_a_second(kind: str, alpha: float) -> None:
    labels = labels_of(60_000)
    for devices in (10, 200, 1000):
        began = time.process_time()
        try:
            found = parts({"kind": kind, "alpha": alpha, "sizes": None}, labels, devices, 1, 10)
        except SpecError as error:
            assert kind == "dirichlet"
            assert "use alpha " in str(error)
        else:
            assert sum(map(len, found)) == 60_000
            assert min(map(len, found)) >= 10
        assert time.process_time() - began < 1


@given(st.integers(1, 40), st.integers(0, 500), st.integers(0, 9))
def test_linear_sizes_grow_by_equal_steps(devices: int, more: int, seed: int) -> None:
    images = devices * (devices + 1) + more  # 2 for the first at least
    found = parts({"kind": "linear"}, np.zeros(images, np.int64), devices, seed)
    ideal = images * np.arange(1, devices + 1) / np.arange(1, devices + 1).sum()
    assert abs(np.array([len(part) for part in found]) - ideal).max() < 1
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(images))


@given(st.integers(1, 30), st.floats(1.01, 3), st.integers(0, 9))
@example(13, 2.0, 0)  # the largest ratio that works, rounded down, does not
def test_exponential_sizes_grow_by_a_ratio(devices: int, ratio: float, seed: int) -> None:
    images = 60_000
    partition: dict[str, Any] = {"kind": "exponential", "ratio": ratio}
    try:
        found = parts(partition, np.zeros(images, np.int64), devices, seed, 10)
    except SpecError as error:
        words = str(error).split()
        if "ratio" in words:
            partition["ratio"] = float(words[words.index("ratio") + 1])
            assert 1 < partition["ratio"] < ratio
            parts(partition, np.zeros(images, np.int64), devices, seed, 10)
        return
    ideal = ratio ** np.arange(devices, dtype=np.float64)
    lengths = np.array([len(part) for part in found])
    assert abs(lengths - images * ideal / ideal.sum()).max() < 1
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(images))


def test_exponential_sizes_are_flower_s_without_a_ratio() -> None:
    """The sizes of ``ExponentialPartitioner``, whose last part has what is left of rounding down."""
    found = parts({"kind": "exponential", "ratio": None}, np.zeros(60_000, np.int64), 5, 1)
    shares = np.exp(np.arange(1, 6)) / np.exp(np.arange(1, 6)).sum()
    flower = (60_000 * shares).astype(int)
    flower[-1] += 60_000 - flower.sum()
    assert abs(np.array([len(part) for part in found]) - flower).max() <= 4
