"""Random faults that overlap, under the virtual clock; ``make mixtures MIXTURES=1-2000`` tries more."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.command import Command
from bench.mixtures import crowded, mixture, try_out
from bench.networks import KINDS, network_kinds, write_graph
from bench.peer_mixtures import of_peers
from bench.resumptions import experiment as resumption
from bench.resumptions import try_out as ends_and_resumes
from testbed.experiment.spec import Spec
from testbed.planning.plan import plan
from tests.end_to_end.conftest import warm


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [101, 102, 104, 105, 106, 107, 108])
def test_a_mixture_is_simulated_to_its_end(seed: int, tmp_path: Path) -> None:
    print(f"to see it again: python -m bench.mixtures --emulate none --seeds {seed}")
    assert try_out(mixture(seed), tmp_path, emulate=False) == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [11, 21])
def test_overlapping_faults_do_not_move_messages_that_have_arrived(
    seed: int, tmp_path: Path
) -> None:
    """These seeds fail if a link that goes down or slows moves messages at a frozen worker."""
    print(f"to see it again: python -m bench.mixtures --crowded --emulate none --seeds {seed}")
    assert try_out(crowded(seed), tmp_path, emulate=False) == []


@pytest.mark.real
@pytest.mark.exercises("namespaces")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [6, 40])  # 40: a push that is not waited for
def test_a_mixture_is_the_same_simulated_and_emulated(seed: int, tmp_path: Path) -> None:
    print(f"to see it again: python -m bench.mixtures --emulate all --seeds {seed} --network star")
    spec = mixture(seed, "star")
    spec["training"]["updates"] = 80  # by which each of its faults has struck
    assert try_out(spec, tmp_path, emulate=True) == []


@pytest.mark.real
@pytest.mark.exercises("namespaces")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("seed", "network"), [(2, "clusters"), (4, "graph")])
def test_so_is_one_with_shared_links(seed: int, network: str, tmp_path: Path) -> None:
    print(
        f"to see it again: python -m bench.mixtures --emulate all --seeds {seed} --network {network}"
    )
    assert try_out(mixture(seed, network), tmp_path, emulate=True) == []


@pytest.mark.real
@pytest.mark.exercises("namespaces")
@pytest.mark.timeout(900)
def test_so_is_one_of_peers_that_die_on_shared_links(tmp_path: Path) -> None:
    print("to see it again: python -m bench.mixtures --peers --emulate all --seeds 30")
    assert try_out(of_peers(30), tmp_path, emulate=True) == []


def test_a_graph_is_written_by_its_seed(tmp_path: Path) -> None:
    """It is connected, and its links are not all alike."""
    for seed in range(1, 40):
        spec = mixture(seed, "graph")
        graph = write_graph(spec, tmp_path)["network"]["graph"]
        assert write_graph(spec, tmp_path)["network"]["graph"] == graph
        if "file" in graph:
            network = plan(Spec.model_validate(write_graph(spec, tmp_path)))[0].network
            assert len(network.routers) >= 3  # two and the core


@pytest.mark.real
@pytest.mark.exercises("namespaces")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("protocol", ["push-and-wait", "push-and-interrupt"])
def test_an_outage_does_not_move_messages_at_a_frozen_worker(protocol: str, tmp_path: Path) -> None:
    """The outage does not move messages that have arrived, in the real processes either."""
    whose: dict[str, Any] = {"who": {"devices": ["worker-0"]}}
    spec = {
        "name": "frozen-and-cut-off",
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": 120},
        "clock": "virtual",
        "algorithms": [{"name": "sync-sgd", "wait_for": 2, "protocol": protocol}],
        "devices": {"workers": 3},
        "network": {"downlink": "20mbit"},
        "waiting": {"distribution": "exponential", "mean": "50ms"},
        "evaluation": {"every": 100, "images": 50},
        "faults": [
            whose | {"when": {"time": "1s"}, "how": "freeze", "lasting": "4s"},
            whose | {"when": {"time": "2s"}, "how": "stop-network", "lasting": "1s"},
        ],
    }
    assert try_out(spec, tmp_path, emulate=True) == []


def test_a_seed_makes_one_mixture_and_seeds_make_all_kinds() -> None:
    assert mixture(7) == mixture(7)
    made = [mixture(seed) for seed in range(1, 201)]
    kinds = {
        how if isinstance(how := fault["how"], str) else how["kind"]
        for one in made
        for fault in one["faults"]
    }
    assert kinds == {"freeze", "kill", "stop-network", "partition", "slow"}
    assert any(fault.get("who") == "server" for one in made for fault in one["faults"])
    assert all(
        120 <= one["training"]["updates"] <= 300
        for one in made
        if "hierarchical" not in network_kinds(one)
    )
    protocols = {one["algorithms"][0].get("protocol") for one in made}
    assert protocols == {None, "pull", "push-and-wait", "push-and-interrupt"}
    assert set(map(network_kinds, made)) >= {(), ("server",), ("clusters",), ("graph",)}
    classes = [of for one in made for of in one["devices"].get("classes", ())]
    assert {key for of in classes for key in of} == {
        "name",
        "number",
        "arrives",
        "leaves",
        "returns",
    }
    assert all("number" in of and of["number"] > 0 for of in classes)


@pytest.mark.parametrize("network", [*KINDS, "peers"])
def test_every_experiment_to_resume_can_be_planned(network: str, tmp_path: Path) -> None:
    for seed in range(1, 6):
        spec = write_graph(resumption(seed, network), tmp_path)
        (one,) = plan(Spec.model_validate(spec))
        assert one.checkpoint_every is not None or network == "peers"


@pytest.mark.real
@pytest.mark.exercises("namespaces")
@pytest.mark.timeout(900)
def test_a_mixture_that_is_killed_and_resumed_is_the_same(tmp_path: Path) -> None:
    print("to see it again: python -m bench.resumptions --seeds 2 --network star --ends 1")

    def start(arguments: Sequence[str], said: int) -> Command:
        return warm().start(arguments, tmp_path, os.environ, said, said)

    found, ways = ends_and_resumes(resumption(2, "star"), tmp_path, 1, start)
    assert (found, len(ways)) == ([], 1)


def test_a_seed_has_the_same_devices_and_faults_in_every_network() -> None:
    star, graph = mixture(7, "star"), mixture(7, "graph")
    assert star | {"network": None} == graph | {"network": None}
