"""Aggregators and the servers above them, against sums and means written naively."""

import copy

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.algorithms.aggregator_half import AggregatorHalf, Combined
from testbed.algorithms.asgd import StalenessDivided
from testbed.algorithms.hierarchical import (
    AsynchronousOverAggregators,
    Hierarchical,
    HierarchicalOptions,
    SynchronousOverAggregators,
)
from testbed.algorithms.interface import Conditions
from testbed.algorithms.synchronous_sgd import SynchronousServer
from testbed.errors import SpecError
from testbed.updates import DenseUpdate, FloatVector, Layout, SparseUpdate, Update

SIZE = 6
ETA = 0.25
LAYOUT = Layout(("weight", "bias"), (SIZE - 1, 1))
CONDITIONS = Conditions(learning_rate=ETA, workers=4, batch_size=1, updates=10)
FIRST = np.linspace(-1, 1, SIZE, dtype=np.float32)

values = st.lists(st.floats(-8, 8, width=32), min_size=SIZE, max_size=SIZE)
gradients = st.tuples(values, st.none() | st.sets(st.integers(0, SIZE - 1), min_size=1))


def update(of: tuple[list[float], set[int] | None]) -> Update:
    numbers, indices = of
    vector = np.array(numbers, np.float32)
    if indices is None:
        return DenseUpdate(vector)
    at = np.array(sorted(indices), np.uint32)
    return SparseUpdate(at, vector[at])


def as_dense(one: Update) -> npt.NDArray[np.float32]:
    if isinstance(one, DenseUpdate):
        return one.values.copy()
    g = np.zeros(SIZE, np.float32)
    g[one.indices] = one.values
    return g


def dense(value: float) -> DenseUpdate:
    return DenseUpdate(np.full(SIZE, value, np.float32))


def aggregator(devices: int = 3, **options: float | str | bool | None) -> AggregatorHalf:
    """Return an aggregator whose devices have joined, at version 0 from time 0 on."""
    spec = HierarchicalOptions.model_validate(options)
    half = Hierarchical.aggregator(spec, LAYOUT, np.zeros(SIZE, np.float32), devices, CONDITIONS)
    for device in range(devices):
        half.joined(device)
    half.adopt(FIRST, [0], time=0.0)
    return half


def taken(half: AggregatorHalf) -> Combined:
    assert half.is_due
    combined = half.take()
    assert combined is not None
    return combined


@given(st.lists(gradients, min_size=1, max_size=5))
def test_what_all_devices_push_is_summed_in_the_order_of_its_arrival(
    of: list[tuple[list[float], set[int] | None]],
) -> None:
    half = aggregator(len(of))
    updates = [update(one) for one in of]
    total: FloatVector = np.zeros(SIZE, np.float32)
    for device, one in enumerate(updates):
        assert half.pull(device) == 0
        assert not half.is_due
        assert half.push(device, one, 0, loss=device) == 0
        total = as_dense(one) if device == 0 else total + as_dense(one)
    combined = taken(half)
    assert (combined.count, list(combined.bases)) == (len(of), [0])
    assert combined.loss == pytest.approx((len(of) - 1) / 2)
    np.testing.assert_array_equal(as_dense(combined.update), total)
    if all(indices is not None for _, indices in of):
        assert isinstance(combined.update, SparseUpdate)
        union = set().union(*(indices or set() for _, indices in of))
        assert combined.update.indices.tolist() == sorted(union)


def test_no_device_gets_parameters_before_they_come_from_above() -> None:
    half = AggregatorHalf(np.zeros(SIZE, np.float32), None, wait_for=1, within=None)
    half.joined(0)
    assert half.pull(0) is None
    half.adopt(FIRST, [7])
    assert half.pull(0) == 7
    np.testing.assert_array_equal(half.outgoing(0), FIRST)


def test_the_first_k_are_combined_and_later_ones_dropped() -> None:
    half = aggregator(wait_for=2)
    for device in range(3):
        half.pull(device)
    half.push(2, dense(1), 0)
    half.push(0, dense(2), 0)
    combined = taken(half)
    assert combined.count == 2
    np.testing.assert_array_equal(as_dense(combined.update), np.full(SIZE, 3))
    assert half.push(1, dense(9), 0) is None  # closed
    assert half.pull(1) is None
    half.adopt(FIRST, [4])
    assert half.push(1, dense(9), 0) is None  # of an older version
    assert half.late == 2
    assert [half.pull(device) for device in range(3)] == [4, 4, 4]


def test_what_comes_within_the_time_is_combined() -> None:
    half = aggregator(within="2.5s")
    assert half.deadline == 2.5
    half.push(0, dense(1), 0)
    half.push(1, dense(1), 0)
    assert not half.is_due
    half.expire()
    assert taken(half).count == 2
    half.adopt(FIRST, [1], time=10.0)
    assert half.deadline == 12.5


def test_if_nothing_comes_within_the_time_the_first_update_is_pushed_alone() -> None:
    half = aggregator(within="2.5s")
    half.expire()
    assert not half.is_due
    assert half.deadline is None
    half.push(1, dense(5), 0)
    assert taken(half).count == 1


def test_all_of_a_cluster_may_be_combined_before_the_time_is_over() -> None:
    half = aggregator(2, within="100s")
    half.push(0, dense(1), 0)
    half.push(1, dense(1), 0)
    assert taken(half).count == 2
    assert half.deadline is None


def test_a_combination_does_not_wait_for_a_device_that_is_gone() -> None:
    half = aggregator(3)
    half.push(0, dense(1), 0)
    half.push(1, dense(1), 0)
    half.forget(2)
    assert taken(half).count == 2


def test_one_device_pushes_one_update_per_version() -> None:
    half = aggregator(3)
    half.push(0, dense(1), 0)
    with pytest.raises(ValueError, match="second update of worker 0"):
        half.push(0, dense(1), 0)
    with pytest.raises(ValueError, match="not between 0 and the version 0"):
        half.push(1, dense(1), 1)


def test_the_largest_entries_of_the_sum_are_pushed_and_the_others_kept() -> None:
    half = aggregator(2, aggregator_ratio=0.5, scope="model", error_feedback=True)
    sums = np.array([1, -6, 2, 5, -4, 3], np.float32)
    half.push(0, DenseUpdate(sums), 0)
    half.push(1, dense(0), 0)
    first = taken(half).update
    assert isinstance(first, SparseUpdate)
    assert dict(zip(first.indices.tolist(), first.values.tolist(), strict=True)) == {
        1: -6,
        3: 5,
        4: -4,
    }
    half.adopt(FIRST, [1])
    half.push(0, dense(0), 1)
    half.push(1, dense(0), 1)
    np.testing.assert_array_equal(as_dense(taken(half).update), [1, 0, 2, 0, 0, 3])


def test_what_changed_since_a_version_is_known_if_that_is_tracked() -> None:
    half = aggregator(1)
    half.track_changes()
    other = FIRST.copy()
    other[:4] = [7, 7, FIRST[2], -0.0]
    half.adopt(other, [3])
    changes = half.changed_since(half.outgoing(0), 0)
    assert isinstance(changes, SparseUpdate)
    assert changes.indices.tolist() == [0, 1, 3]


def test_state_is_restored() -> None:
    one, other = aggregator(3), aggregator(3)
    one.push(0, update(([1.0] * SIZE, {1, 2})), 0, loss=2.0)
    other.restore(copy.deepcopy(one.state()))
    for half in (one, other):
        half.push(1, update(([1.0] * SIZE, {2, 3})), 0, loss=4.0)
        half.forget(2)
    first, second = taken(one), taken(other)
    np.testing.assert_array_equal(as_dense(first.update), as_dense(second.update))
    assert (first.count, first.loss) == (second.count, second.loss) == (2, 3.0)


# -- servers above aggregators


@given(st.lists(gradients, min_size=1, max_size=6), st.data())
def test_the_synchronous_server_steps_along_the_mean_of_all_updates(
    of: list[tuple[list[float], set[int] | None]], data: st.DataObject
) -> None:
    cluster = [data.draw(st.integers(0, 2)) for _ in of]
    present = sorted(set(cluster))
    half = SynchronousOverAggregators(FIRST.copy(), ETA, len(of))
    for one in present:
        half.joined(one)
        half.pull(one)
    total = np.zeros(SIZE)
    for one in present:
        own = [as_dense(update(g)) for g, where in zip(of, cluster, strict=True) if where == one]
        total += np.sum(own, axis=0, dtype=np.float64)
        s = np.asarray(np.sum(own, axis=0, dtype=np.float32), np.float32)
        assert half.push_sum(one, DenseUpdate(s), 0, len(own)) == 0
    assert half.version == 1
    assert half.diagnose() == {"combined": len(of)}
    np.testing.assert_allclose(half.parameters, FIRST - ETA * total / len(of), atol=1e-4)


@given(st.lists(gradients, min_size=1, max_size=5))
def test_one_aggregator_leads_to_the_bits_of_none(
    of: list[tuple[list[float], set[int] | None]],
) -> None:
    plain = SynchronousServer(FIRST.copy(), ETA, len(of), "pull")
    above = SynchronousOverAggregators(FIRST.copy(), ETA, len(of))
    above.joined(len(of))
    below = aggregator(len(of))
    for device, one in enumerate(of):
        plain.push(device, update(one), 0)
        below.push(device, update(one), 0)
    combined = taken(below)
    above.push_sum(len(of), combined.update, 0, combined.count)
    assert above.version == plain.version == 1
    assert above.parameters.tobytes() == plain.parameters.tobytes()


def test_a_late_or_second_push_adds_nothing_to_the_divisor() -> None:
    half = SynchronousOverAggregators(np.zeros(SIZE, np.float32), 1.0, 2)
    half.joined(0)
    half.joined(1)
    half.push_sum(0, dense(4), 0, 2)
    with pytest.raises(ValueError, match="second gradient"):
        half.push_sum(0, dense(4), 0, 2)
    half.push_sum(1, dense(8), 0, 2)
    np.testing.assert_array_equal(half.parameters, np.full(SIZE, -3))
    assert half.push_sum(0, dense(100), 0, 50) is None
    half.push_sum(0, dense(1), 1, 1)
    half.push_sum(1, dense(1), 1, 1)
    np.testing.assert_array_equal(half.parameters, np.full(SIZE, -4))


@given(gradients, st.integers(0, 3))
def test_the_asynchronous_server_with_one_device_per_cluster_is_asgd(
    of: tuple[list[float], set[int] | None], delay: int
) -> None:
    plain = StalenessDivided(FIRST.copy(), ETA)
    above = AsynchronousOverAggregators(FIRST.copy(), ETA)
    for _ in range(delay):
        plain.push(1, dense(1), plain.version)
        above.push_sum(1, dense(1), above.version, 1)
    assert plain.push(0, update(of), 0) == above.push_sum(0, update(of), 0, 1) == delay
    assert above.parameters.tobytes() == plain.parameters.tobytes()


def test_the_asynchronous_server_divides_a_sum_by_its_number() -> None:
    half = AsynchronousOverAggregators(np.zeros(SIZE, np.float32), 1.0)
    half.push_sum(0, dense(6), 0, 3)
    np.testing.assert_array_equal(half.parameters, np.full(SIZE, -2))
    assert half.diagnose() == {"combined": 3}


def test_other_servers_take_no_sums() -> None:
    half = SynchronousServer(np.zeros(SIZE, np.float32), ETA, 1, "pull")
    with pytest.raises(ValueError, match="it is no aggregator"):
        half.push_sum(0, dense(1), 0, 3)


def test_devices_push_whole_gradients_or_the_largest_entries() -> None:
    for ratio, expected in ((None, DenseUpdate), (0.5, SparseUpdate)):
        options = HierarchicalOptions(ratio=ratio)
        half = Hierarchical.worker(options, LAYOUT, CONDITIONS)
        assert isinstance(half.compress(FIRST), expected)


def test_devices_that_push_all_keep_what_the_encoding_rounded_away() -> None:
    """With error feedback, which needs no ratio."""
    spec = HierarchicalOptions(error_feedback=True)
    half = Hierarchical.worker(spec, LAYOUT, CONDITIONS)
    half.lost(half.compress(np.full(SIZE, 1.5, np.float32)), dense(1.0))
    assert as_dense(half.compress(np.zeros(SIZE, np.float32))).tolist() == [0.5] * SIZE
    assert not Hierarchical.averages(spec)


def test_more_updates_than_there_are_workers_are_refused() -> None:
    with pytest.raises(SpecError, match="wait_for is 5, and there are only 4 workers"):
        Hierarchical.check(HierarchicalOptions(wait_for=5), CONDITIONS)


@given(st.lists(st.tuples(gradients, st.integers(1, 5)), min_size=3, max_size=3))
def test_sums_of_sums_and_the_number_of_all_updates_are_pushed(
    pushed: list[tuple[tuple[list[float], set[int] | None], int]],
) -> None:
    half = aggregator(devices=3)
    for caller, (one, count) in enumerate(pushed):
        half.pull(caller)
        half.push_sum(caller, update(one), 0, count, loss=float(caller))
    combined = taken(half)
    expected = np.zeros(SIZE, np.float32)
    for one, _ in pushed:
        expected += as_dense(update(one))
    np.testing.assert_array_equal(as_dense(combined.update), expected)
    number = sum(count for _, count in pushed)
    assert combined.count == number
    losses = sum(caller * count for caller, (_, count) in enumerate(pushed))
    assert combined.loss == pytest.approx(losses / number)


def test_an_aggregator_without_devices_is_not_waited_for_until_it_asks() -> None:
    half = aggregator(devices=2)
    half.pull(0)
    half.pull(1)
    half.finished(1, 0)  # it reports that it has no devices
    half.push_sum(0, dense(1), 0, 3)
    assert taken(half).count == 3
    half.adopt(FIRST, [1], time=0.0)
    half.pull(0)
    half.pull(1)
    half.push_sum(0, dense(1), 1, 3)
    assert not half.is_due
    half.push_sum(1, dense(1), 1, 1)
    assert taken(half).count == 4
