"""The state of every registered algorithm's halves, during a run, is all that they remember."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.algorithms import ALGORITHMS, has
from testbed.algorithms.interface import Conditions
from testbed.algorithms.server_half import ServerHalf
from testbed.algorithms.worker_half import WorkerHalf
from testbed.checkpoints.files import CheckpointFiles
from testbed.updates import DenseUpdate, FloatVector, Layout, SparseUpdate, Update

LAYOUT = Layout(("weight", "bias"), (5000, 40))
WORKERS = 4
CONDITIONS = Conditions(0.1, WORKERS, 10, 100)
MORE: dict[str, list[dict[str, Any]]] = {
    "comp-asgd": [
        {"error_feedback": True, "momentum": 0.5, "error_decay": 0.5},
        {"selection": "random", "error_feedback": True},
    ],
    "adacomp": [{"error_feedback": True}],
    "dana-ga": [{"ratio": 0.1, "gap": "layer", "error_feedback": True}],
    "dbw": [{"ratio": 0.01, "error_feedback": True}],
    "sync-sgd": [{"wait_for": 3}, {"wait_for": 2, "protocol": "push-and-interrupt"}],
}
"""By algorithm: options other than the defaults, with which its halves remember more."""
HALVES = [
    (name, options)
    for name in ALGORITHMS
    if has(name, "server")
    for options in ({}, *MORE.get(name, ()))
]


class Playing:
    """A server's half and random workers, whose actions follow from the seed."""

    def __init__(self, name: str, options: dict[str, Any], seed: int) -> None:
        algorithm = ALGORITHMS[name]
        self._options = algorithm.options_type.model_validate({"name": name} | options)
        self._rng = np.random.default_rng(seed)
        initial = np.linspace(-1, 1, LAYOUT.total, dtype=np.float32)
        self.server: ServerHalf = algorithm.server(self._options, LAYOUT, initial, CONDITIONS)
        self.server.track_changes()
        for worker in range(WORKERS):
            self.server.joined(worker)
        self.workers = [algorithm.worker(self._options, LAYOUT, CONDITIONS) for _ in range(WORKERS)]
        self.computing: dict[int, int] = {}

    def gradient(self) -> FloatVector:
        return self._rng.standard_normal(LAYOUT.total, np.float32)

    def play(self, steps: int) -> list[Any]:
        """Take ``steps`` random actions; return their visible results."""
        seen: list[Any] = []
        for _ in range(steps):
            worker = int(self._rng.integers(WORKERS))
            if worker not in self.computing:
                version = self.server.pull(worker)
                seen.append((worker, version, self.server.outgoing(worker).tobytes()))
                if version is not None:
                    self.computing[worker] = version
            elif self._rng.random() < 0.05:
                del self.computing[worker]
                self.server.forget(worker)
                self.server.joined(worker)
            else:
                update = self.workers[worker].compress(self.gradient())
                received = rounded(update)
                self.workers[worker].lost(update, received)
                base = self.computing.pop(worker)
                delay = self.server.push(worker, received, base, loss=1.0, time=0.5)
                seen.append((worker, delay, self.server.parameters.tobytes()))
        since = self.server.changed_since(self.server.parameters, self.server.version // 2)
        return [*seen, since.values.tobytes()]


def rounded(update: Update) -> Update:
    values = np.round(update.values, 2)
    if isinstance(update, SparseUpdate):
        return SparseUpdate(update.indices, values)
    return DenseUpdate(values)


def moved(half: ServerHalf | WorkerHalf, new: Any, folder: Path) -> None:
    """Copy one half's state into another half, by way of a checkpoint file."""
    with CheckpointFiles.open(folder, ()) as files:
        files.write(1, half.state())
        new.restore(files.newest())


@pytest.mark.parametrize(("name", "options"), HALVES)
def test_halves_go_on_from_a_restored_state(
    tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    one = Playing(name, options, 1)
    one.play(60)
    other = Playing(name, options, 1)
    aliased = other.server.parameters
    moved(one.server, other.server, tmp_path / "server")
    assert other.server.parameters is aliased
    for i in range(WORKERS):
        moved(one.workers[i], other.workers[i], tmp_path / f"{i}")
    other.computing = dict(one.computing)
    other._rng = np.random.default_rng()
    other._rng.bit_generator.state = one._rng.bit_generator.state
    assert other.play(60) == one.play(60)


@pytest.mark.parametrize(("name", "options"), HALVES)
def test_a_run_does_not_change_what_the_state_leaves_out(
    name: str, options: dict[str, Any]
) -> None:
    # An attribute may be left out of the state only if a new half has it right already.
    one, new = Playing(name, options, 1), Playing(name, options, 1)
    one.play(60)
    halves = [(one.server, new.server), *zip(one.workers, new.workers, strict=True)]
    for played, fresh in halves:
        left_out = set(vars(played)) - set(played.state())
        assert left_out == set(vars(fresh)) - set(fresh.state())
        for attribute in left_out - {"_spare"}:  # memory without content
            mine, theirs = getattr(played, attribute), getattr(fresh, attribute)
            assert type(mine) is type(theirs)
            assert not isinstance(mine, int | float | dict | set | np.ndarray), attribute
