"""The rules of paper 002 against their equations, written naively over the whole history.

Nothing here is kept up to date: every momentum, moment and mean square is summed anew at each push from
all gradients before it, in double precision, and every delay is counted from the versions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from testbed.algorithms import ALGORITHMS
from testbed.algorithms.gap import layers
from testbed.algorithms.interface import Conditions
from testbed.algorithms.learning_rate import RateSchedule
from testbed.algorithms.server_half import ServerHalf
from testbed.updates import DenseUpdate, Layout, SparseUpdate

Vector = npt.NDArray[np.float64]

LAYOUT = Layout(("a.weight", "a.bias", "b.weight"), (3, 1, 3))
SIZE = LAYOUT.total
WORKERS = 4
ETA = 0.25
SCHEDULE = RateSchedule(ETA, 4, 0.5, (9,), 0.5, None, 100)
CONDITIONS = Conditions(ETA, WORKERS, 10, 100, schedule=SCHEDULE)
EPSILON = 1e-8

CASES: list[tuple[str, dict[str, Any]]] = [
    ("momentum-asgd", {}),
    ("momentum-asgd", {"momentum": 0}),
    ("momentum-asgd", {"momentum": -0.5}),
    ("nag-asgd", {"momentum": 0.5}),
    ("nag-asgd", {"momentum": 0}),
    ("sa", {}),
    ("sa", {"momentum": 0.5, "nesterov": True}),
    ("sa-gradient", {}),
    ("sa-gradient", {"momentum": 0}),
    ("sa-gradient", {"momentum": 0.5, "nesterov": True}),
    *(("ga", {"gap": gap, "momentum": 0.5}) for gap in ("parameter", "layer", "model")),
    *(("ga", {"gap": gap, "momentum": 0.5, "nesterov": True}) for gap in ("parameter", "model")),
    ("ga", {"momentum": 0}),
    ("ga", {"momentum": 0.5, "gap_decay": 0, "gap": "model"}),
    ("dana", {"momentum": 0.5}),
    ("dana", {"momentum": 0}),
    ("dana-sa", {"momentum": 0.5}),
    *(("dana-ga", {"gap": gap, "momentum": 0.5}) for gap in ("parameter", "layer", "model")),
    ("adam", {}),
    ("adam", {"beta1": 0, "beta2": 0, "epsilon": 0.1}),
    ("adam-sa", {"beta1": 0.5}),
    *(("adam-ga", {"gap": gap, "beta1": 0.5}) for gap in ("parameter", "layer", "model")),
    ("dc-asgd", {"momentum": 0.5}),
    ("dc-asgd", {"momentum": 0, "compensation": 0}),
]
EACH = pytest.mark.parametrize(
    ("name", "options"), CASES, ids=["-".join(map(str, (n, *o.values()))) for n, o in CASES]
)


@dataclass(frozen=True)
class Event:
    """A worker pulls, or pushes what it computed at its last pull; or it is lost."""

    worker: int
    gradient: tuple[float, ...]
    sparse: bool
    lost: bool


events = st.builds(
    Event,
    st.integers(0, WORKERS - 1),
    st.tuples(*[st.sampled_from([0.0, 1.0, -2.0, 0.25])] * SIZE),
    st.booleans(),
    st.sampled_from([False] * 9 + [True]),
)


def half(name: str, options: dict[str, Any], conditions: Conditions = CONDITIONS) -> ServerHalf:
    algorithm = ALGORITHMS[name]
    chosen = algorithm.options_type.model_validate({"name": name} | options)
    return algorithm.server(chosen, LAYOUT, np.zeros(SIZE, np.float32), conditions)


def sum_of(terms: Sequence[Vector], factor: float) -> Vector:
    """Return Σ_j factor^(k − j) · term_j, up to the last term, k."""
    total = np.zeros(SIZE)
    for j, term in enumerate(reversed(terms)):
        total += factor**j * term
    return total


@dataclass
class Naive:
    """A server that remembers everything and computes everything anew."""

    name: str
    options: dict[str, Any]
    theta: list[Vector] = field(default_factory=lambda: [np.zeros(SIZE)])
    pushed: list[tuple[int, Vector, Vector]] = field(default_factory=list)
    """Of each push: worker, gradient, and the gradient after its penalty."""
    averaged: list[Vector] = field(default_factory=list)
    """The vectors of all updates, whose mean square is C's."""
    lost: dict[int, int] = field(default_factory=dict)
    """By worker: its pushes before this one are forgotten."""
    sent: dict[int, tuple[int, Vector]] = field(default_factory=dict)

    def option(self, key: str, default: float) -> float:
        return float(self.options.get(key, default))

    @property
    def gamma(self) -> float:
        return self.option("momentum", 0.9)

    def momentum(self, worker: int | None) -> Vector:
        """Return v, or v^i of a worker."""
        if worker is None:
            return sum_of([after for _, _, after in self.pushed], self.gamma)
        own = [
            after
            for j, (i, _, after) in enumerate(self.pushed)
            if i == worker and j >= self.lost.get(i, 0)
        ]
        return sum_of(own, self.gamma)

    def pull(self, worker: int) -> Vector:
        theta = self.theta[-1]
        if self.name.startswith("dana"):
            total = sum((self.momentum(i) for i in range(WORKERS)), np.zeros(SIZE))
            theta = theta - SCHEDULE(len(self.pushed)) * self.gamma * total
        self.sent[worker] = len(self.pushed), theta
        return theta

    def gap(self, worker: int) -> Vector:
        """Return G; equations 12, 13 and Definition 1 with Algorithm 14.

        C is a mean over the updates before this one; before the first, nothing has moved.
        """
        if not self.averaged:
            return np.ones(SIZE)
        distance, parts = self.theta[-1] - self.sent[worker][1], [slice(i, i + 1) for i in range(7)]
        if self.options.get("gap") == "layer":
            parts = [slice(0, 4), slice(4, 7)]
        elif self.options.get("gap") == "model":
            parts = [slice(0, 7)]
        beta, k, g = self.option("gap_decay", 0.999), len(self.averaged), np.empty(SIZE)
        for part in parts:
            m = sum(
                (1 - beta) * beta ** (k - 1 - j) * np.sum(one[part] ** 2)
                for j, one in enumerate(self.averaged)
            )
            c = ETA * (np.sqrt(m / (1 - beta**k)) + EPSILON)
            g[part] = np.linalg.norm(distance[part]) / c + 1
        return g

    def push(self, worker: int, g: Vector) -> tuple[int, Vector]:
        """Apply a push; return its delay from 1 and what its gradient was divided by."""
        version, theta_i = self.sent.pop(worker), self.theta[-1]
        self.sent[worker] = version
        tau, eta, theta = len(self.theta) - version[0], SCHEDULE(len(self.pushed)), theta_i
        own = worker if self.name.startswith("dana") else None
        penalty = np.ones(SIZE)
        if self.name in ("sa-gradient", "dana-sa", "adam-sa"):
            penalty *= tau
        elif self.name.endswith("ga"):
            penalty = self.gap(worker)
        after = g / penalty
        if self.name == "dc-asgd":
            after = g + self.option("compensation", 2) * g * g * (theta - version[1])
        self.pushed.append((worker, g, after))
        v = self.momentum(own)
        if self.name.startswith("adam"):
            v = self.adam_step()
        self.averaged.append(v)
        if self.name == "nag-asgd" or self.options.get("nesterov"):
            v = after + self.gamma * v
        if self.name == "sa":
            v, penalty = v / tau, penalty * tau
        self.theta.append(theta - eta * v)
        del self.sent[worker]
        return tau, penalty

    def adam_step(self) -> Vector:
        """Return m̂ / (√v̂ + ε) after the last push; before any it is 0."""
        k = len(self.pushed)
        if not k:
            return np.zeros(SIZE)
        beta1, beta2 = self.option("beta1", 0.9), self.option("beta2", 0.999)
        m = sum_of([(1 - beta1) * after for _, _, after in self.pushed], beta1) / (1 - beta1**k)
        v = sum_of([(1 - beta2) * g**2 for _, g, _ in self.pushed], beta2) / (1 - beta2**k)
        return m / (np.sqrt(v) + self.option("epsilon", EPSILON))


@EACH
@settings(max_examples=30, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.lists(events, max_size=40))
def test_a_rule_is_its_equations_whatever_the_order(
    name: str, options: dict[str, Any], schedule: list[Event]
) -> None:
    server, naive = half(name, options), Naive(name, options)
    for event in schedule:
        worker = event.worker
        if event.lost:
            server.forget(worker)
            naive.lost[worker] = len(naive.pushed)
            naive.sent.pop(worker, None)
        elif worker not in naive.sent:
            version = server.pull(worker)
            assert version == len(naive.pushed)
            expected = naive.pull(worker)
            assert server.outgoing(worker) == pytest.approx(expected, rel=1e-3, abs=1e-4)
        else:
            g = np.array(event.gradient)
            values = g.astype(np.float32)
            k = np.flatnonzero(values).astype(np.uint32)
            update = SparseUpdate(k, values[k]) if event.sparse else DenseUpdate(values)
            version = naive.sent[worker][0]
            tau, penalty = naive.push(worker, g)
            assert server.push(worker, update, version) == tau - 1
            assert server.parameters == pytest.approx(naive.theta[-1], rel=1e-3, abs=1e-4)
            told = server.diagnose()
            assert told["delay"] == tau
            if event.sparse and not len(k):
                continue
            entries = k if event.sparse else slice(None)
            assert told["penalty"] == pytest.approx(penalty[entries].mean(), rel=1e-3)
            if "gap" in told:
                assert told["gap"] == pytest.approx(penalty.mean(), rel=1e-3)


@pytest.mark.parametrize("name", ["ga", "dana-ga", "adam-ga"])
@pytest.mark.parametrize("gap", ["parameter", "layer", "model"])
@pytest.mark.parametrize("decay", [None, 0.0, 0.5])
def test_c_is_the_distance_of_one_update_from_the_second_on(
    name: str, gap: str, decay: float | None
) -> None:
    """Every update moves every parameter by η: C is η, and G is 1 + the updates since the pull."""
    rule = {"ga": {"momentum": 0}, "dana-ga": {"momentum": 0}, "adam-ga": {"beta1": 0, "beta2": 0}}
    server = half(name, {"gap": gap, "gap_decay": decay} | rule[name], Conditions(0.25, 9, 10, 100))
    for worker in range(9):
        server.pull(worker)
    # A gradient of 1 + delay is divided by its gap and moves by 1. Adam's steps do not follow the size
    # of the gradient: its second is of 1/2.
    for updates in range(2 if name == "adam-ga" else 9):
        server.push(updates, DenseUpdate(np.full(SIZE, 1 + updates, np.float32)), 0)
        assert server.diagnose()["penalty"] == pytest.approx(1 + updates, rel=1e-5)


def test_layers_are_tensors_whose_names_agree_up_to_the_dot() -> None:
    assert layers(LAYOUT) == [slice(0, 4), slice(4, 7)]
    names = ("weight", "bias", "0.x", "0.y", "1.mean")
    assert layers(Layout(names, (2, 1, 1, 2, 3), buffers=3)) == [
        slice(0, 2),
        slice(2, 3),
        slice(3, 6),
    ]


@EACH
def test_shared_buffers_move_as_asgd_moves_them(name: str, options: dict[str, Any]) -> None:
    layout = Layout(("a.weight", "a.running_mean"), (3, 2), buffers=2)
    algorithm, initial = ALGORITHMS[name], np.arange(5, dtype=np.float32)
    chosen = algorithm.options_type.model_validate({"name": name} | options)
    server = algorithm.server(chosen, layout, initial.copy(), CONDITIONS)
    alone = algorithm.server(chosen, Layout(("a.weight",), (3,)), initial[:3].copy(), CONDITIONS)
    other = ALGORITHMS["asgd"].server(
        ALGORITHMS["asgd"].options_type(name="asgd"), layout, initial.copy(), CONDITIONS
    )
    generator = np.random.default_rng(1)
    for one in (server, alone, other):
        for worker in range(3):
            one.pull(worker)
    base = dict.fromkeys(range(3), 0)
    for step in range(12):
        worker = (step * 2) % 3
        g = generator.standard_normal(5, np.float32)
        server.push(worker, DenseUpdate(g), base[worker])
        alone.push(worker, DenseUpdate(g[:3].copy()), base[worker])
        other.push(worker, DenseUpdate(g), base[worker])
        for one in (server, alone, other):
            base[worker] = one.pull(worker) or 0
        assert np.array_equal(server.outgoing(worker)[:3], alone.outgoing(worker))
        assert np.array_equal(server.outgoing(worker)[3:], server.parameters[3:])
    assert np.array_equal(server.parameters[:3], alone.parameters)
    assert np.array_equal(server.parameters[3:], other.parameters[3:])


ALONE: list[tuple[str, dict[str, Any]]] = [
    ("momentum-asgd", {"momentum": 0.9}),
    ("sa", {}),
    ("sa-gradient", {}),
    ("ga", {}),
    ("ga", {"gap": "model"}),
    ("dc-asgd", {}),
    ("nag-asgd", {}),
    *((name, {"nesterov": True}) for name in ("sa", "sa-gradient", "ga")),
    ("dana", {}),
    ("dana-sa", {}),
    ("adam", {}),
    ("adam-sa", {}),
    ("adam-ga", {}),
]


@pytest.mark.parametrize(("name", "options"), ALONE)
def test_one_worker_equals_torch_s_optimiser(name: str, options: dict[str, Any]) -> None:
    """With DANA the worker computes at an estimate, and it is this that goes Nesterov's way."""
    server = half(name, options, Conditions(0.1, 1, 10, 100))
    theta = torch.zeros(SIZE, requires_grad=True)
    nesterov = name in ("nag-asgd", "dana", "dana-sa") or "nesterov" in options
    optimiser: torch.optim.Optimizer = torch.optim.SGD(
        [theta], lr=0.1, momentum=0.9, nesterov=nesterov
    )
    if name.startswith("adam"):
        optimiser = torch.optim.Adam([theta], lr=0.1)
    target = np.linspace(-1, 1, SIZE, dtype=np.float32)
    for step in range(50):
        assert server.pull(0) == step
        at = server.outgoing(0).copy()
        assert at == pytest.approx(theta.detach().numpy(), rel=1e-3, abs=1e-4)
        # A gradient that depends on where it is computed: that of ½·c·(θ − target)².
        c = np.float32(1 + step % 3)
        theta.grad = (theta.detach() - torch.from_numpy(target)) * float(c)
        optimiser.step()
        server.push(0, DenseUpdate(c * (at - target)), step)
        assert server.diagnose()["penalty"] == 1
    assert abs(server.outgoing(0)).max() > 0.5


@pytest.mark.parametrize("name", ["ga", "dana-ga", "adam-ga", "dc-asgd", "dana"])
def test_nothing_is_kept_of_workers_that_are_lost(name: str) -> None:
    server = half(name, {})
    for worker in range(WORKERS):
        server.pull(worker)
        server.push(worker, DenseUpdate(np.ones(SIZE, np.float32)), worker)
        server.pull(worker)
    for worker in range(WORKERS):
        server.forget(worker)
    state = server.state()
    kept = state.get("_theta_i") or state["penalty"].get("_theta_i")
    if kept is not None:
        assert not kept["_pulled"]
        assert not kept["_copies"]["_copies"]
    if name.startswith("dana"):
        assert not state["_v"]
        assert not state["_sum"].any()


@pytest.mark.parametrize("name", ["ga", "dana-ga", "adam-ga", "dc-asgd"])
def test_a_push_needs_the_parameters_that_the_worker_was_sent_last(name: str) -> None:
    server, one = half(name, {}), DenseUpdate(np.ones(SIZE, np.float32))
    server.pull(0)
    server.push(0, one, 0)
    with pytest.raises(ValueError, match="not the version that it pulled last"):
        server.push(0, one, 0)
    assert server.version == 1
