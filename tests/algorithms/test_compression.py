"""The compressing worker halves: which entries they keep, in which scope, with which values."""

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from testbed.algorithms import ALGORITHMS, has
from testbed.algorithms.compression import LargestEntries
from testbed.algorithms.interface import Conditions
from testbed.algorithms.rule import MomentumOptions
from testbed.updates import DenseUpdate, Layout, SparseUpdate

LAYOUT = Layout(("weights", "biases"), (100, 10))
ONE = Conditions(learning_rate=0.1, workers=1, batch_size=10, updates=100)


def gradient() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    values = np.random.default_rng(3).normal(size=110).astype(np.float32)
    values[100:] *= 0.001  # the second tensor would never be chosen over the whole model
    return values


def test_scope_tensor_keeps_the_ratio_of_each_tensor() -> None:
    update = LargestEntries(LAYOUT, 0.1, "tensor").compress(gradient())
    assert [int(np.sum(update.indices < 100)), int(np.sum(update.indices >= 100))] == [10, 1]
    assert np.array_equal(update.values, gradient()[update.indices])
    assert np.all(np.diff(update.indices.astype(np.int64)) > 0)


def test_scope_model_keeps_the_largest_entries_of_all() -> None:
    update = LargestEntries(LAYOUT, 0.1, "model").compress(gradient())
    assert len(update.indices) == 11
    assert update.indices.max() < 100
    rest = np.delete(np.abs(gradient()), update.indices)
    assert np.abs(update.values).min() >= rest.max()


def test_random_entries_are_drawn_anew_for_each_gradient_and_worker() -> None:
    options = ALGORITHMS["comp-asgd"].options_type.model_validate(
        {"name": "comp-asgd", "ratio": 0.1, "selection": "random", "scope": "tensor"}
    )
    workers = [
        ALGORITHMS["comp-asgd"].worker(options, LAYOUT, replace(ONE, device=device))
        for device in (0, 1, 0)
    ]
    drawn = [[worker.compress(gradient()) for _ in range(200)] for worker in workers]
    assert all(isinstance(one, SparseUpdate) for of_one in drawn for one in of_one)
    first, other, again = ([one.indices for one in of_one] for of_one in drawn)  # type: ignore[union-attr]
    assert all(map(np.array_equal, first, again))
    assert not any(map(np.array_equal, first, other))
    assert all(int(np.sum(one < 100)) == 10 and len(np.unique(one)) == 11 for one in first)
    assert np.array_equal(drawn[0][0].values, gradient()[first[0]])
    # Each of the 100 entries is expected 20 times in 200 draws, with a deviation of 4.2.
    counts = np.bincount(np.concatenate(first), minlength=110)[:100]
    assert counts.min() > 4 and counts.max() < 40


def test_the_default_scopes_are_those_of_the_papers() -> None:
    assert ALGORITHMS["adacomp"].options_type.model_validate({"name": "adacomp"}).scope == "tensor"  # type: ignore[attr-defined]
    assert ALGORITHMS["comp-asgd"].options_type.model_validate({}).scope == "model"  # type: ignore[attr-defined]


NOT_SGD = {"adam", "adam-sa", "adam-ga", "easgd"}


@pytest.mark.parametrize("name", [n for n in ALGORITHMS if has(n, "server") and n not in NOT_SGD])
def test_one_worker_at_ratio_1_is_plain_sgd(name: str) -> None:
    algorithm = ALGORITHMS[name]
    fields = algorithm.options_type.model_fields
    chosen = {"ratio": 1} if "ratio" in fields else {}
    if issubclass(algorithm.options_type, MomentumOptions):
        chosen["momentum"] = 0
    options = algorithm.options_type.model_validate(chosen)
    worker = algorithm.worker(options, LAYOUT, ONE)
    server = algorithm.server(options, LAYOUT, np.ones(110, np.float32), ONE)
    expected = np.ones(110, np.float32)
    for step in range(5):
        g = np.random.default_rng(step).normal(size=110).astype(np.float32)
        version = server.pull(0)
        assert version is not None
        update = worker.compress(g)
        assert isinstance(update, DenseUpdate | SparseUpdate)
        assert server.push(0, update, version) == 0
        expected -= np.float32(0.1) * g
    assert np.allclose(server.parameters, expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["comp-asgd", "adacomp"])
def test_by_default_entries_that_are_not_sent_are_forgotten(name: str) -> None:
    options = ALGORITHMS[name].options_type.model_validate({"name": name})
    assert type(ALGORITHMS[name].worker(options, LAYOUT, ONE)) is LargestEntries


@pytest.mark.parametrize("name", ["comp-asgd", "adacomp"])
@pytest.mark.parametrize("key", ["momentum", "error_decay"])
def test_options_of_error_feedback_need_error_feedback(name: str, key: str) -> None:
    accept = ALGORITHMS[name].options_type.model_validate
    with pytest.raises(ValidationError, match="add `error_feedback: true`") as raised:
        accept({"name": name, key: 0.5})
    assert raised.value.errors()[0]["loc"] == (key,)
    accept({"name": name, key: 0.5, "error_feedback": True})
    accept({"name": name, key: None})
    with pytest.raises(ValidationError) as raised:  # one mistake is reported once
        accept({"name": name, key: 0.5, "error_feedback": "perhaps"})
    assert [error["loc"] for error in raised.value.errors()] == [("error_feedback",)]
