"""The learning rate by version, and the algorithms that take it at each step's version."""

import math
from collections import deque
from collections.abc import Sequence

import numpy as np
import pytest

from testbed.algorithms import ALGORITHMS, has
from testbed.algorithms.adacomp import AdaptiveStaleness
from testbed.algorithms.all_to_all import ExchangingPeer
from testbed.algorithms.asgd import StalenessDivided
from testbed.algorithms.interface import Conditions
from testbed.algorithms.learning_rate import RateSchedule
from testbed.algorithms.synchronous_sgd import SynchronousServer
from testbed.updates import DenseUpdate, FloatVector, Layout, SparseUpdate, Update


def schedule(
    milestones: Sequence[float] = (), cosine_to: float | None = None, warm_up: float = 0
) -> RateSchedule:
    return RateSchedule(0.8, warm_up, 0.25, milestones, 0.1, cosine_to, 100)


def test_a_warm_up_rises_linearly_to_the_rate() -> None:
    rate = schedule(warm_up=10)
    assert [rate(version) for version in (0, 5, 10, 99)] == pytest.approx([0.2, 0.5, 0.8, 0.8])


def test_milestones_multiply_the_rate_from_their_version_on() -> None:
    rate = schedule(milestones=[20, 40.5])
    found = [rate(version) for version in (0, 19, 20, 40, 41)]
    assert found == pytest.approx([0.8, 0.8, 0.08, 0.08, 0.008])


def test_a_cosine_falls_from_the_warm_up_to_the_end() -> None:
    rate = schedule(cosine_to=0.5, warm_up=20)
    assert [rate(version) for version in (20, 60, 100, 200)] == pytest.approx([0.8, 0.6, 0.4, 0.4])
    third = 0.8 * (0.5 + 0.5 * (1 + math.cos(math.pi / 4)) / 2)
    assert rate(40) == pytest.approx(third)


def halving(version: int) -> float:
    return 0.5**version


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("half", [StalenessDivided, AdaptiveStaleness])
def test_servers_step_by_the_rate_at_their_version(
    half: type[StalenessDivided] | type[AdaptiveStaleness], sparse: bool
) -> None:
    server = half(np.zeros(2, np.float32), halving)
    one = np.ones(2, np.float32)
    update: Update = (
        SparseUpdate(np.arange(2, dtype=np.uint32), one) if sparse else DenseUpdate(one)
    )
    for version in range(3):
        server.pull(0)
        server.push(0, update, version)
    np.testing.assert_array_equal(server.parameters, -1.75)


def test_synchronous_servers_and_peers_do_so_too() -> None:
    server = SynchronousServer(np.zeros(2, np.float32), halving, 2, "pull")
    one: FloatVector = np.ones(2, np.float32)
    for version in range(3):
        for worker in range(2):
            server.pull(worker)
            server.push(worker, DenseUpdate(one.copy()), version)
    np.testing.assert_array_equal(server.parameters, -1.75)
    peer = ExchangingPeer(np.zeros(2, np.float32), halving, 0, 2)
    peer.step(one)
    peer.receive(1, DenseUpdate(one))
    np.testing.assert_array_equal(peer.parameters, -1.5)


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if has(name, "peer")])
def test_peers_take_the_rate_at_the_update_that_the_run_counts(name: str) -> None:
    asked: list[int] = []

    def rate(version: int) -> float:
        asked.append(version)
        return 0.5

    conditions = Conditions(1.0, 4, 10, 100, schedule=rate)
    algorithm, layout = ALGORITHMS[name], Layout(("a",), (8,))
    options = algorithm.options_type.model_validate({"partitions": 2} if name == "ako" else {})
    peers = [
        algorithm.peer(options, layout, np.zeros(8, np.float32), i, conditions) for i in range(4)
    ]
    for made in (4, 8, 12):  # updates of the run: one for each step of a peer
        under_way = deque(
            (sender, parcel)
            for sender, half in enumerate(peers)
            for parcel in half.step(np.ones(8, np.float32))
        )
        while under_way:
            sender, parcel = under_way.popleft()
            for receiver in parcel.peers:
                answers = peers[receiver].receive(sender, parcel.update.copy())
                under_way.extend((receiver, one) for one in answers)
        assert [half.version for half in peers] == [made] * 4
    assert 8 <= max(asked) < 12


def test_all_built_in_algorithms_take_the_rate_of_the_conditions() -> None:
    assert all(algorithm.scheduled for algorithm in ALGORITHMS.values())
    conditions = Conditions(0.3, 1, 10, 100)
    assert conditions.rate(7) == 0.3
