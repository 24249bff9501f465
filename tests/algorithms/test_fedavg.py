"""Federated averaging against its paper, by hand."""

import numpy as np
import pytest
from pydantic import ValidationError

from testbed.algorithms.fedavg import FedAvg, FedAvgOptions, FedAvgServer, LocalTraining
from testbed.algorithms.interface import Conditions
from testbed.algorithms.worker_half import Leg
from testbed.errors import SpecError
from testbed.updates import DenseUpdate, FloatVector

ETA = 0.5


def conditions(*images: int, device: int | None = None) -> Conditions:
    return Conditions(ETA, len(images), 10, 100, seed=3, images=images, device=device)


def vector(*values: float) -> FloatVector:
    return np.array(values, np.float32)


def server(*images: int, fraction: float = 1.0, wait_for: int | None = None) -> FedAvgServer:
    made = FedAvgServer(vector(1.0, 2.0), conditions(*images), fraction, wait_for)
    for worker in range(len(images)):
        made.joined(worker)
    return made


def drawn(half: FedAvgServer) -> list[int]:
    """Return the workers that are sent this round's parameters."""
    workers = range(half._conditions.workers)
    return [one for one in workers if half.pull(one) is not None]


@pytest.mark.parametrize("proximal", [0.0, 0.5])
def test_a_worker_pushes_its_way_from_the_model_that_it_began_at(proximal: float) -> None:
    half, began = (
        LocalTraining(lambda version: ETA / (1 + version), proximal),
        np.array([4.0, -1.0]),
    )
    rate = ETA / 8
    copy, expected = began.astype(np.float32), began
    gradients = [vector(1, 2), vector(-3, 0.5), vector(0.25, 1)]
    for step, gradient in enumerate(gradients):
        expected = expected - rate * (gradient + proximal * (expected - began))
        if step < len(gradients) - 1:
            half.local(step, copy, gradient, 7)
            np.testing.assert_allclose(copy, expected, rtol=1e-6)
    way = (began - expected) / rate
    np.testing.assert_allclose(half.compress(gradients[-1]).values, way, rtol=1e-6)
    # Nothing is left of a round, nor of a computation that was dropped.
    assert half.compress(vector(1, 1)).values.tolist() == [1, 1]
    for step in (0, 1, 0):
        half.local(step, copy.copy(), vector(1, 1), 7)
    pushed = half.compress(vector(0, 0)).values
    np.testing.assert_allclose(pushed, [1 - proximal * rate] * 2, rtol=1e-6)


def test_the_server_averages_models_weighted_by_images() -> None:
    half = server(30, 10)
    assert drawn(half) == [0, 1]
    assert half.push(1, DenseUpdate(vector(4, 0)), 0) == 0
    assert half.version == 0
    assert half.push(0, DenseUpdate(vector(0, 8)), 0) == 0
    assert half.version == 1
    assert half.parameters.tolist() == [1 - ETA * 0.25 * 4, 2 - ETA * 0.75 * 8]
    assert half.diagnose() == {"k": 2, "late": 0}


def test_each_round_draws_other_workers_and_equal_seeds_the_same() -> None:
    rounds = []
    for _ in range(2):
        half, sets = server(*[10] * 20, fraction=0.25), []
        for version in range(6):
            chosen = drawn(half)
            assert len(chosen) == 5
            for worker in chosen:
                half.push(worker, DenseUpdate(vector(0, 0)), version)
            sets.append(tuple(chosen))
        rounds.append(sets)
    assert rounds[0] == rounds[1]
    assert len(set(rounds[0])) == 6


def test_stragglers_are_dropped() -> None:
    half = server(10, 10, 10, wait_for=2)
    assert drawn(half) == [0, 1, 2]
    for worker in (2, 0):
        half.push(worker, DenseUpdate(vector(1, 1)), 0)
    assert half.version == 1
    assert half.push(1, DenseUpdate(vector(9, 9)), 0) is None
    assert half.parameters.tolist() == [1 - ETA, 2 - ETA]


def test_a_round_ends_at_its_time_limit_with_what_has_come() -> None:
    half = FedAvgServer(vector(1.0, 2.0), conditions(10, 30, 10), 1.0, None, within=2.0)
    assert half.deadline is None
    for worker in (0, 1):
        half.joined(worker)
    for worker, time in ((1, 5.0), (0, 5.5)):
        assert half.pull(worker, time=time) == 0
    assert half.deadline == 7.0  # from the round's beginning
    half.push(1, DenseUpdate(vector(1, 1)), 0, time=6.0)
    half.expire()
    assert (half.version, half.deadline) == (1, None)
    assert half.parameters.tolist() == [1 - ETA, 2 - ETA]
    assert half.push(0, DenseUpdate(vector(9, 9)), 0, time=7.5) is None
    # Nobody is in time: the first one ends the round.
    for worker in (0, 1):
        assert half.pull(worker, time=8.0) == 1
    assert half.deadline == 10.0
    half.expire()
    assert (half.version, half.deadline) == (1, None)
    half.push(0, DenseUpdate(vector(1, 1)), 1, time=11.0)
    assert half.version == 2
    # And a limit that is over is none of the next round.
    for worker in (0, 1):
        assert half.pull(worker, time=12.0) == 2
    half.push(0, DenseUpdate(vector(1, 1)), 2, time=12.5)
    assert half.version == 2
    half.push(1, DenseUpdate(vector(1, 1)), 2, time=12.5)
    assert (half.version, half.deadline) == (3, None)


def test_when_all_that_were_drawn_are_gone_the_time_limit_begins_anew() -> None:
    half = FedAvgServer(vector(1.0, 2.0), conditions(10, 10, 10, 10), 0.25, None, within=2.0)
    for worker in range(4):
        half.joined(worker)
    (one,) = (worker for worker in range(4) if half.pull(worker, time=1.0) is not None)
    half.expire()
    half.forget(one)
    assert (half.version, half.deadline) == (0, None)
    (other,) = (worker for worker in range(4) if half.pull(worker, time=4.0) is not None)
    assert (other != one, half.deadline) == (True, 6.0)


def test_who_is_gone_is_not_waited_for_and_others_are_drawn_if_all_are() -> None:
    half = server(*[10] * 10, fraction=0.2)
    one, other = drawn(half)
    half.push(one, DenseUpdate(vector(1, 1)), 0)
    half.forget(other)
    assert half.version == 1
    gone = drawn(half)
    for worker in gone:
        half.forget(worker)
    assert half.version == 1
    again = drawn(half)
    assert len(again) == 1  # of the seven that are left
    assert not set(again) & {*gone, other}
    half.push(again[0], DenseUpdate(vector(1, 1)), 1)
    assert half.version == 2


def test_a_worker_computes_as_many_mini_batches_as_its_images_make() -> None:
    def legs(images: int, **options: float) -> object:
        own = conditions(images, 20, device=0)
        return FedAvg.legs(FedAvgOptions.model_validate(options), own)

    assert legs(100) == (Leg(10),)
    assert legs(100, local_epochs=2.5) == (Leg(25),)
    assert legs(12, local_epochs=0.1) == (Leg(1),)
    assert legs(100, local_steps=3) == (Leg(3),)


def test_no_more_models_are_waited_for_than_are_drawn() -> None:
    options = FedAvgOptions(fraction=0.5, wait_for=3)
    with pytest.raises(SpecError, match="wait_for is 3, and 2 of 4 workers are drawn"):
        FedAvg.check(options, conditions(1, 1, 1, 1))


def test_a_fraction_may_be_a_percentage() -> None:
    assert FedAvgOptions.model_validate({"fraction": "30%"}) == FedAvgOptions(fraction=0.3)
    with pytest.raises(ValidationError, match="less than or equal to 1"):
        FedAvgOptions.model_validate({"fraction": "130%"})


def test_epochs_and_steps_of_a_round_are_not_both_given() -> None:
    with pytest.raises(ValidationError, match="takes the place of local_epochs"):
        FedAvgOptions(local_epochs=2, local_steps=3)
    assert FedAvgOptions(local_epochs=None, local_steps=3).local_steps == 3
