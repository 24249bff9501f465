"""A run's state: the counts of updates and evaluations, by class and by bucket."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.metrics.device_metrics import WORKERS
from testbed.metrics.exporter import METRICS
from testbed.metrics.state import BUCKETS, RunState, Staleness
from testbed.runs.class_records import ALL, DeviceClasses, device_classes
from testbed.telemetry.entries import Diagnoses, EvaluationMade, Updates
from testbed.telemetry.update_rows import UPDATE

SLOW_AND_FAST = [{"share": 0.25, "factor": 10.0}, {"share": 0.75, "factor": 1.0}]


def run_state(classes: DeviceClasses | None = None, workers: int = 4) -> RunState:
    classes = classes or device_classes({}, 1, workers)
    names = tuple(f"worker-{i}" for i in range(workers))
    return RunState("name/time", "asgd", {}, 100, classes, names)


def rows(workers: list[int], applied: list[bool]) -> np.ndarray:
    made = np.zeros(len(workers), UPDATE)
    made["worker"], made["applied"] = workers, applied
    made["payload_bytes"], made["message_bytes"] = 10, 30
    return made


@given(st.lists(st.integers(0, 2000), max_size=50))
def test_a_bucket_includes_its_upper_bound(values: list[int]) -> None:
    histogram = Staleness()
    histogram.add(np.array(values, np.int64))
    below = histogram.counts.cumsum()
    for bound, count in zip(BUCKETS, below, strict=False):
        assert count == sum(value <= bound for value in values)
    assert below[-1] == len(values) and histogram.sum == sum(values)


def test_pushes_are_counted_by_class_and_worker_and_updates_by_their_versions() -> None:
    state = run_state(DeviceClasses(("fast", "slow"), np.array([0, 1, 1, 0])))
    state.take(Updates(rows([0, 1, 2, 2, 3], [True, True, True, False, True]), 2))
    state.take(Updates(rows([1], [True]), 3))
    assert (state.updates, state.dropped) == (3, 1)
    assert state.class_updates.tolist() == [2, 3]
    assert state.worker_updates.tolist() == [1, 2, 1, 1]
    assert state.worker_message_bytes.tolist() == [30, 60, 60, 30]
    assert state.ingress == {"payload": 60, "message": 180, "wire": 0}
    state.raise_ingress(payload=50, message=200, wire=300)  # a ledger of an earlier moment
    assert state.ingress == {"payload": 60, "message": 200, "wire": 300}
    state.take(Updates(rows([1], [True]), 2))  # 20 message bytes of it are in that ledger already
    assert state.ingress == {"payload": 70, "message": 210, "wire": 300}
    assert state.updates == 3  # as a counter does, though a server went back to its checkpoint


def test_what_peers_send_is_no_ingress() -> None:
    state = replace(run_state(), served=False)
    state.take(Updates(rows([0, 1], [True, True]), 2))
    assert state.ingress == {"payload": 0, "message": 0, "wire": 0}
    assert state.worker_message_bytes.tolist() == [30, 30, 0, 0]


def test_the_bytes_that_an_accuracy_took_are_kept() -> None:
    state = run_state()
    for updates, percent in enumerate((50, 90, 80, 96)):
        sizes = {f"{layer}_bytes": updates * 100 for layer in ("payload", "message", "wire")}
        state.take(
            EvaluationMade({"iteration": updates, "accuracy": percent, "loss": 1.0, **sizes})
        )
    assert {accuracy: sizes["wire"] for accuracy, sizes in state.reached.items()} == {
        0.8: 100,
        0.9: 100,
        0.95: 300,
    }
    assert state.evaluation is not None
    assert state.evaluation.updates == 3
    assert state.evaluation.accuracy == pytest.approx(0.96)


def test_the_rate_is_that_of_the_last_seconds() -> None:
    state = run_state()
    state.measure_rate(0.0)
    assert state.rate is None
    for second in range(1, 31):
        state.updates += 10 if second <= 15 else 2
        state.measure_rate(float(second))
        if second == 15:
            assert state.rate == pytest.approx(10)
    assert state.rate == pytest.approx(2)


def test_classes_are_named_after_their_factors() -> None:
    assert device_classes({"compute": {}}, 1, 7).names == (ALL,)
    state = device_classes({"compute": {"classes": SLOW_AND_FAST}, "waiting": {}}, 1, 8)
    assert state.names == ("compute-x1", "compute-x10")
    assert state.sizes.tolist() == [6, 2]
    # Both sections shuffle the devices alike, so that their classes are nested.
    halves = [{"share": 0.5, "factor": 2.0}, {"share": 0.5, "factor": 0.5}]
    both = device_classes(
        {"compute": {"classes": SLOW_AND_FAST}, "waiting": {"classes": halves}}, 1, 8
    )
    assert both.names == (
        "compute-x1+waiting-x0.5",
        "compute-x1+waiting-x2",
        "compute-x10+waiting-x2",
    )
    assert both.sizes.tolist() == [4, 2, 2]


@given(st.integers(1, 200), st.integers(0, 5))
def test_class_names_are_bounded_and_the_same_each_time(devices: int, seed: int) -> None:
    sections = {"compute": {"classes": SLOW_AND_FAST}, "waiting": {"classes": SLOW_AND_FAST}}
    state, again = (device_classes(sections, seed, devices) for _ in range(2))
    assert set(state.names) <= {"compute-x10+waiting-x10", "compute-x1+waiting-x1"}
    assert state.names == again.names and state.of_device.tolist() == again.of_device.tolist()
    assert state.sizes.sum() == devices


def test_pushes_of_devices_around_aggregators_are_unknown_and_not_0() -> None:
    state = run_state()
    state.take(Updates(rows([4, 5], [True, True]), 1))  # of two aggregators, numbered after workers
    read = {metric.name: metric.read for metric in METRICS + WORKERS}
    for of_pushes in ("class_updates_total", "worker_updates_total", "worker_ingress_bytes_total"):
        assert not list(read[f"testbed_{of_pushes}"](state))
    assert list(read["testbed_updates_total"](state)) == [((), 1)]


def test_numbers_that_an_algorithm_or_a_program_does_not_know_are_absent() -> None:
    unknown = float("nan")
    read = {metric.name: metric.read for metric in METRICS}
    row = {"iteration": 1, "accuracy": 50.0, "loss": unknown, "wire_bytes": 9}
    row |= {"payload_bytes": 5, "message_bytes": 7}
    algorithm, program = run_state(), replace(run_state(), target=None)
    for state in (algorithm, program):
        state.take(EvaluationMade(row))
    assert not list(read["testbed_loss"](program))
    [(_, diverged)] = read["testbed_loss"](algorithm)
    assert np.isnan(diverged)
    named = replace(run_state(), declared=("k", "gain"))
    named.take(Diagnoses(np.array([[4.0, unknown]]), 1))
    assert list(read["testbed_diagnostic"](named)) == [(("k",), 4.0)]
