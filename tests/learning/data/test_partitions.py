"""Partitions: always disjoint and complete, and each kind as its paper defines it."""

import hashlib
import itertools
import math
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from testbed.errors import SpecError
from testbed.learning.data.partitions import dirichlet, equal, parts, shards, sizes
from testbed.random_streams import stream

Labels = npt.NDArray[np.int64]


def labels_of(images: int, seed: int = 0) -> Labels:
    return np.random.default_rng(seed).integers(0, 10, images)


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], Labels, int, int, int]:
    devices = draw(st.integers(1, 60))
    least = draw(st.integers(1, 6))
    each = max(least, draw(st.integers(1, 12)))
    kinds: dict[str, dict[str, Any]] = {
        "equal": {},
        "dirichlet": {"alpha": draw(st.sampled_from([0.001, 0.05, 0.5, 10.0, 1e6]))},
        "shards": {"per_worker": draw(st.integers(1, each))},
        "sizes": {"weights": draw(st.lists(st.floats(1e-3, 1e6), min_size=60, max_size=60))},
    }
    kind = draw(st.sampled_from(sorted(kinds)))
    images = devices * each + draw(st.integers(0, 50))
    labels = draw(st.sampled_from([labels_of(images), np.zeros(images, np.int64)]))
    return {"kind": kind, **kinds[kind]}, labels, devices, draw(st.integers(0, 9)), least


@given(cases())
def test_every_image_belongs_to_exactly_one_device(
    case: tuple[dict[str, Any], Labels, int, int, int],
) -> None:
    partition, labels, devices, seed, least = case
    try:
        found = parts(partition, labels, devices, seed, least)
    except SpecError:  # the other kinds have enough images
        assume(partition["kind"] != "dirichlet")
        raise
    assert len(found) == devices
    assert all(part.dtype == np.int64 for part in found)
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(len(labels)))
    again = parts(partition, labels.astype(np.uint8), devices, seed, least)
    assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))
    if partition["kind"] == "dirichlet":
        assert min(map(len, found)) >= least


@pytest.mark.parametrize(
    ("images", "devices", "seed", "digest"),
    [
        (1442, 20, 1, "986755778a1ca203ef00e7e31781e366a1d714d4b153f8d0f92059e4f9464194"),
        (60_000, 200, 7, "1ab2ca3a4f18e96cbff8aa7cc53926031eec5d308bdc984f11f92bb126f8c593"),
        (103, 10, 2**62, "9ea406cd750b51fa195fc7e4c4ee15cee0a28dde990d50ca9fb5844af4bad2ca"),
    ],
)
def test_equal_parts_are_those_of_earlier_versions(
    images: int, devices: int, seed: int, digest: str
) -> None:
    """An experiment without ``partition`` keeps the results that it had."""
    found = hashlib.sha256()
    for part in parts({"kind": "equal"}, np.zeros(images, np.uint8), devices, seed):
        found.update(part.tobytes() + b"|")
    assert found.hexdigest() == digest


@given(st.integers(1, 300), st.integers(0, 300), st.integers(0, 5))
def test_equal_parts_differ_by_one_image_at_most(devices: int, more: int, seed: int) -> None:
    lengths = [len(part) for part in equal(devices + more, devices, seed)]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize(
    "partition",
    [
        {"kind": "equal"},
        {"kind": "dirichlet", "alpha": 0.5},
        {"kind": "shards", "per_worker": 2},
        {"kind": "sizes", "weights": [1.0] * 10},
    ],
    ids=lambda partition: partition["kind"],
)
def test_a_partition_depends_on_the_seed(partition: dict[str, Any]) -> None:
    one, other = (parts(partition, labels_of(1000), 10, seed) for seed in (1, 2))
    assert not np.array_equal(one[0], other[0])


def counts(labels: Labels, found: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return np.array([np.bincount(labels[part], minlength=10) for part in found])


def test_a_small_alpha_gives_few_labels_and_a_large_one_all() -> None:
    labels = labels_of(60_000)
    few, many = (counts(labels, dirichlet(labels, 20, a, 1, 10)) for a in (0.05, 1000.0))
    assert np.median((few > 0.05 * few.sum(axis=1, keepdims=True)).sum(axis=1)) <= 3
    assert (abs(many / 300 - 1) < 0.25).all()


def test_a_label_s_shares_have_the_variance_of_dirichlet_s_law() -> None:
    """Var p = (n − 1) / (n² (n·α + 1)) for each of n devices."""
    labels, devices, alpha = labels_of(40_000), 10, 0.5
    shares = np.concatenate(
        [
            counts(labels, dirichlet(labels, devices, alpha, seed, 1)).ravel() / 4000
            for seed in range(60)
        ]
    )
    expected = (devices - 1) / (devices**2 * (devices * alpha + 1))
    # 6,000 draws, of a kurtosis of about 10: the variance's standard error is about 4 %.
    assert shares.var() == pytest.approx(expected, rel=0.15)


ALPHAS = [0.001, 0.01, 0.05, 0.2, 0.5, 2.0, 10.0, 100.0, 1e6]


def concentration(labels: Labels, partition: dict[str, Any], devices: int, least: int) -> float:
    """Return the mean share of a device's most frequent label; NaN if every seed is refused."""
    shares = []
    for seed in range(6):
        try:
            found = counts(labels, parts(partition, labels, devices, seed, least))
        except SpecError:
            continue
        shares.append((found.max(axis=1) / found.sum(axis=1)).mean())
    return float(np.mean(shares)) if shares else float("nan")


@pytest.mark.parametrize(
    ("images", "devices", "least"),
    [(1442, 200, 1), (1442, 20, 10), (1442, 8, 10), (6000, 2, 1), (6000, 50, 10)],
)
def test_the_smaller_alpha_the_more_concentrated_are_labels(
    images: int, devices: int, least: int
) -> None:
    labels = labels_of(images)
    found = [
        concentration(labels, {"kind": "dirichlet", "alpha": alpha}, devices, least)
        for alpha in ALPHAS
    ]
    accepted = [one for one in found if not math.isnan(one)]
    # 0.06: three standard errors of the mean over the seeds that are left, with few devices.
    slack = 0.06 if devices < 20 else 0.02
    assert all(more > less - slack for more, less in itertools.pairwise(accepted))
    if least < 7:
        assert accepted[0] > accepted[-1] + 0.05


def test_the_fewer_shards_the_more_concentrated_are_labels() -> None:
    labels = labels_of(6000)
    found = [
        concentration(labels, {"kind": "shards", "per_worker": count}, 50, 1)
        for count in (1, 2, 3, 5, 10, 30, 60, 120)
    ]
    assert all(more > less for more, less in itertools.pairwise(found))
    assert found[0] > 0.9
    assert found[-1] < 0.25


@given(
    st.integers(2, 120),
    st.integers(1, 12),
    st.sampled_from(ALPHAS),
    st.integers(0, 99),
    st.integers(1, 12),
)
def test_a_dirichlet_part_is_of_its_draw_only(
    devices: int, least: int, alpha: float, seed: int, each: int
) -> None:
    """Each device has a run of each label's images in the label's random order: no others' images."""
    labels = labels_of(devices * max(least, each), seed)
    try:
        found = dirichlet(labels, devices, alpha, seed, least)
    except SpecError as error:
        assert re.search(r": use .*\d+ workers? \(devices.workers\)", str(error))
        return
    assert min(map(len, found)) >= least
    generator = stream(seed, "partition dirichlet")
    for label in np.unique(labels):
        order = generator.permutation(np.flatnonzero(labels == label))
        dealt = np.concatenate([part[labels[part] == label] for part in found])
        np.testing.assert_array_equal(dealt, order)


@pytest.mark.parametrize(
    ("alpha", "devices", "least"), [(0.001, 200, 7), (0.05, 200, 1), (0.1, 50, 10), (0.001, 11, 1)]
)
def test_a_refused_alpha_comes_with_what_works(alpha: float, devices: int, least: int) -> None:
    labels = labels_of(1442)
    with pytest.raises(SpecError, match="none of 10 draws") as raised:
        dirichlet(labels, devices, alpha, 1, least)
    text = str(raised.value)
    if found := re.search(r"alpha ([\d.]+)", text):
        dirichlet(labels, devices, float(found[1]), 1, least)
    if found := re.search(r"batch_size (\d+)", text):
        dirichlet(labels, devices, alpha, 1, int(found[1]))
    workers = re.search(r"(\d+) workers? \(devices", text)
    assert workers
    dirichlet(labels, int(workers[1]), alpha, 1, least)


@pytest.mark.parametrize(
    ("images", "devices", "alpha", "least", "digest"),
    [
        (1442, 20, 0.5, 10, "a594367c2cec393f5721d544c7274f5c201e437446c115adf97f76b75f77ac1d"),
        (60_000, 200, 0.5, 10, "f5d1175a08bd92e78ce553e2224a9d41edd742562e7305f5810341cf691e4998"),
        (1442, 8, 0.1, 10, "c95a341051647c14b43af6232c7c5510fd3d11fb3e6879e1b2757eb91564322a"),
    ],
)
def test_dirichlet_parts_are_those_of_earlier_versions(
    images: int, devices: int, alpha: float, least: int, digest: str
) -> None:
    found = hashlib.sha256()
    for part in dirichlet(labels_of(images), devices, alpha, 1, least):
        found.update(part.tobytes() + b"|")
    assert found.hexdigest() == digest


def test_two_shards_of_sorted_labels_have_at_most_two_labels() -> None:
    labels = np.repeat(np.arange(10), 600)
    found = counts(labels, shards(labels, 100, 2, 1))
    # 200 shards of 30 images, 20 of each label: no device has more than two.
    assert ((found > 0).sum(axis=1) <= 2).all()
    assert (found % 30 == 0).all()
    assert (found.sum(axis=1) == 60).all()
    assert ((found > 0).sum(axis=1) == 2).sum() > 70


def test_sizes_are_in_proportion_to_the_weights() -> None:
    lengths = [len(part) for part in sizes(1000, [1.0, 1.0, 2.0, 6.0], 1)]
    assert lengths == [100, 100, 200, 600]
    labels = np.zeros(90, np.int64)
    of_some = parts({"kind": "sizes", "weights": [1.0, 2.0, 9.0]}, labels, 2, 1)
    assert [len(part) for part in of_some] == [30, 60]


@pytest.mark.parametrize(
    ("partition", "needs"),
    [
        ({"kind": "equal"}, "one"),
        ({"kind": "sizes", "weights": [1.0] * 11}, "one"),
        ({"kind": "dirichlet", "alpha": 1.0}, "10"),
        ({"kind": "shards", "per_worker": 3}, "3"),
    ],
)
def test_too_few_images_are_refused(partition: dict[str, Any], needs: str) -> None:
    said = f"^10 training images .* 11 workers: each needs {needs};"
    with pytest.raises(SpecError, match=said) as refusal:
        parts(partition, labels_of(10), 11, 1, least=10)
    of_mini_batch = "or a smaller training.batch_size" in str(refusal.value)
    assert of_mini_batch == (partition["kind"] == "dirichlet")


@pytest.mark.parametrize("kind", ["same", "stream"])
def test_every_device_has_all_images_where_none_are_shared_out(kind: str) -> None:
    found = parts({"kind": kind}, np.zeros(50, np.uint8), 70, 1, 10)
    assert len(found) == 70
    for part in found:
        np.testing.assert_array_equal(part, np.arange(50))
    with pytest.raises(SpecError, match="9 training images cannot be"):
        parts({"kind": kind}, np.zeros(9, np.uint8), 1, 1, 10)
