"""The durations of every device: its own stream, its class, its changes, and the cost of all of it."""

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.durations import Durations
from testbed.durations.shares import apportion
from testbed.random_streams import stream

EXPONENTIAL: dict[str, Any] = {"distribution": "exponential", "mean": 0.1}
ADACOMP = [
    {"share": 0.3, "factor": 1.0},
    {"share": 0.4, "factor": 10.0},
    {"share": 0.3, "factor": 100.0},
]
SLOWDOWN = [{"at": 160.0, "share": 0.5, "factor": 5.0}]
CVB = {"distribution": "cvb", "mean": 0.1, "task_variation": 0.1, "machine_variation": 0.6}
SECTIONS = [
    {"distribution": "constant", "mean": 0.1},
    {"distribution": "uniform", "mean": 0.1},
    EXPONENTIAL,
    {"distribution": "shifted-exponential", "mean": 0.1, "alpha": 0.2},
    {"distribution": "pareto", "mean": 0.1, "shape": 2.5},
    {"distribution": "gamma", "mean": 0.1, "variation": 0.3},
    CVB,
    EXPONENTIAL | {"classes": ADACOMP, "changes": SLOWDOWN},
]


def some(
    section: dict[str, Any], seed: int = 1, devices: int = 16, purpose: str = "waiting"
) -> Any:
    """Return three draws of each device."""
    durations = Durations.of(section, seed, purpose, devices)
    made = [durations.of_device(i) for i in range(devices)]
    return [[one.sample(0.0) for _ in range(3)] for one in made]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda s: s["distribution"])
def test_the_same_seed_gives_the_same_draws_and_each_device_its_own(
    section: dict[str, Any],
) -> None:
    draws = some(section)
    assert some(section) == draws
    if section["distribution"] != "constant":
        flat = [x for one in draws for x in one]
        assert len(set(flat)) == len(flat)
        for others in (some(section, seed=2), some(section, purpose="compute")):
            assert not set(flat) & {x for one in others for x in one}


def test_the_waiting_times_of_published_runs_are_unchanged() -> None:
    """They drew an exponential from the stream ``waiting`` of each device."""
    for device, draws in enumerate(some(EXPONENTIAL, seed=3)):
        before = stream(3, "waiting", device)
        assert draws == [before.exponential(0.1) for _ in range(3)]


def test_one_more_draw_of_a_device_changes_no_other_device() -> None:
    durations = Durations.of(CVB, 1, "compute", 2)
    one, two = durations.of_device(0), durations.of_device(1)
    alone = Durations.of(CVB, 1, "compute", 2).of_device(1)
    for _ in range(5):
        one.sample(0.0)
        one.sample(0.0)
        assert two.sample(0.0) == alone.sample(0.0)


def test_a_device_s_draws_do_not_depend_on_the_number_of_devices() -> None:
    few, many = (Durations.of(CVB, 1, "compute", n) for n in (4, 400))
    assert few.of_device(3).sample(0.0) == many.of_device(3).sample(0.0)


def test_machines_of_cvb_are_drawn_once_and_only_scale_their_tasks() -> None:
    durations = Durations.of(CVB, 1, "compute", 500)
    alike = Durations.of(CVB | {"machine_variation": 0.0}, 1, "compute", 500)
    means = [durations.of_device(i).mean for i in range(500)]
    assert means == [durations.of_device(i).mean for i in range(500)]
    assert np.std(means) == pytest.approx(0.06, rel=0.15)
    assert durations.mean == pytest.approx(np.mean(means))
    for i in range(20):
        # The same variates of the tasks, scaled by the machine's mean.
        ratio = durations.of_device(i).sample(0.0) / alike.of_device(i).sample(0.0)
        assert ratio == pytest.approx(means[i] / 0.1)


def test_classes_have_their_counts_and_factors() -> None:
    plain = Durations.of(EXPONENTIAL, 1, "waiting", 200)
    durations = Durations.of(EXPONENTIAL | {"classes": ADACOMP}, 1, "waiting", 200)
    assert np.bincount(durations.classes).tolist() == [60, 80, 60]
    assert durations.classes != tuple(sorted(durations.classes))
    for i in range(200):
        factor = (1.0, 10.0, 100.0)[durations.classes[i]]
        one = durations.of_device(i)
        assert one.mean == 0.1 * factor
        assert one.sample(0.0) == plain.of_device(i).sample(0.0) * factor
    assert durations.mean == pytest.approx(0.1 * (0.3 + 4 + 30))


def test_classes_depend_on_the_seed_and_not_on_the_purpose_or_law() -> None:
    def who(seed: int, purpose: str, section: dict[str, Any]) -> tuple[int, ...]:
        return Durations.of(section | {"classes": ADACOMP}, seed, purpose, 200).classes

    assert who(1, "compute", CVB) == who(1, "waiting", EXPONENTIAL)
    assert who(1, "compute", CVB) != who(2, "compute", CVB)


@pytest.mark.parametrize(
    ("shares", "devices", "counts"),
    [
        ([0.3, 0.4, 0.3], 200, [60, 80, 60]),
        ([0.3, 0.4, 0.3], 16, [5, 6, 5]),
        ([0.3, 0.4, 0.3], 1, [0, 1, 0]),
        ([0.5, 0.5], 5, [3, 2]),
        ([0.29, 0.71], 100, [29, 71]),
        ([1.0], 7, [7]),
        ([1.0, 0.0], 7, [7, 0]),
    ],
)
def test_shares_are_apportioned_by_largest_remainder(
    shares: list[float], devices: int, counts: list[int]
) -> None:
    assert apportion(shares, devices) == counts


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8), st.integers(1, 10_000))
def test_shares_cover_all_devices_and_are_off_by_less_than_one(
    weights: list[int], devices: int
) -> None:
    shares = [weight / sum(weights) for weight in weights]
    counts = apportion(shares, devices)
    assert sum(counts) == devices
    for count, share in zip(counts, shares, strict=True):
        assert abs(count - share * devices) < 1 + 1e-6


def test_a_change_begins_at_its_time_and_reaches_its_share() -> None:
    section = {"distribution": "constant", "mean": 0.5, "changes": SLOWDOWN}
    durations = Durations.of(section, 1, "compute", 16)
    made = [durations.of_device(i) for i in range(16)]
    assert [one.sample(159.999) for one in made] == [0.5] * 16
    after = [one.sample(160.0) for one in made]
    assert sorted(after) == [0.5] * 8 + [2.5] * 8
    assert {i for i, seconds in enumerate(after) if seconds > 1} == durations.changes[0].devices
    assert [one.mean for one in made] == [0.5] * 16
    assert durations.changes[0].devices != frozenset(range(8))


def test_factors_of_changes_multiply_in_any_order_and_can_be_undone() -> None:
    changes = [
        {"at": 20.0, "share": 0.5, "factor": 0.25},
        {"at": 10.0, "share": 0.5, "factor": 4.0},
    ]
    everyone = [{"at": 15.0, "share": 1.0, "factor": 2.0}]
    section = {"distribution": "constant", "mean": 1.0, "changes": changes + everyone}
    durations = Durations.of(section, 1, "compute", 4)
    made = [durations.of_device(i) for i in range(4)]
    seen = [sorted(one.sample(now) for one in made) for now in (0.0, 10.0, 15.0, 20.0)]
    assert seen == [[1] * 4, [1, 1, 4, 4], [2, 2, 8, 8], [2] * 4]


def test_changes_strike_devices_independently_of_classes() -> None:
    """Otherwise a change of half of the devices could strike exactly the fast ones."""
    section = EXPONENTIAL | {"changes": SLOWDOWN}
    section["classes"] = [{"share": 0.5, "factor": 1.0}, {"share": 0.5, "factor": 10.0}]
    durations = Durations.of(section, 1, "waiting", 200)
    fast = sum(durations.classes[i] == 0 for i in durations.changes[0].devices)
    assert 30 < fast < 70


def test_ten_thousand_devices_are_made_within_three_seconds() -> None:
    """Measured 0.3 s on one of two shared cores; the bound allows for a busy host."""
    began = time.process_time()
    durations = Durations.of(EXPONENTIAL | {"classes": ADACOMP}, 1, "waiting", 10_000)
    made = [durations.of_device(i) for i in range(10_000)]
    assert time.process_time() - began < 3
    assert sum(one.sample(0.0) for one in made) > 0
