"""Experiment files with an algorithm that has aggregators, and the keys that are refused beside it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.cli.plan_faults import describe
from testbed.errors import SpecError
from testbed.experiment.load import load
from testbed.experiment.spec import Spec
from testbed.planning.plan import plan

CLUSTERS: list[dict[str, Any]] = [
    {"name": "campus", "number": 2, "uplink": "8mbit", "delay": "5ms"},
    {"name": "village", "number": 1},
]
SPEC: dict[str, Any] = {
    "name": "tree",
    "dataset": "digits",
    "model": "mlp",
    "training": {"updates": 5},
    "algorithms": ["sync-sgd", "hierarchical"],
    "devices": {"workers": 3},
    "network": {"clusters": CLUSTERS},
    "clock": "virtual",
    "engine": "simulation",
    "compute": {"distribution": "constant", "mean": "1s"},
}


def test_there_is_an_aggregator_beside_each_clusters_router() -> None:
    star, tree = plan(Spec.model_validate(SPEC))
    assert (star.aggregators, tree.aggregators) == ((), ("aggregator-0", "aggregator-1"))
    assert tree.network.link("aggregator-1").router == "village"
    assert tree.network.links[: len(star.links)] == star.links
    assert tree.servers == tree.counted == ("server",)
    assert tree.conversations == [
        ("worker-0", "aggregator-0"),
        ("worker-1", "aggregator-0"),
        ("worker-2", "aggregator-1"),
        ("aggregator-0", "server"),
        ("aggregator-1", "server"),
    ]
    assert list(tree.settings.network.aggregator_of) == [0, 0, 1, -1, -1]
    routes = [tree.settings.route(number) for number in range(5)]
    assert [route and route.up_delay for route in routes] == [0, 0, 0, 0.005, 0]
    assert [bool(route and route.up) for route in routes] == [False, False, False, True, False]


def test_aggregators_of_clusters_inside_another_talk_to_its_own() -> None:
    clusters = [
        {"name": "region", "delay": "10ms", "uplink": "1mbit"},
        {"name": "campus", "inside": "region", "number": 2, "delay": "5ms"},
        {"name": "village", "number": 1},
    ]
    tree = plan(Spec.model_validate(SPEC | {"network": {"clusters": clusters}}))[1]
    assert tree.aggregators == ("aggregator-0", "aggregator-1", "aggregator-2")
    assert tree.network.link("aggregator-2").router == "region"
    assert tree.conversations == [
        ("worker-0", "aggregator-0"),
        ("worker-1", "aggregator-0"),
        ("worker-2", "aggregator-1"),
        ("aggregator-0", "aggregator-2"),
        ("aggregator-1", "server"),
        ("aggregator-2", "server"),
    ]
    assert list(tree.settings.network.aggregator_of) == [0, 0, 1, 2, -1, -1]
    assert [list(tree.settings.callers(index)) for index in range(4)] == [[4, 5], [0, 1], [2], [3]]
    routes = [tree.settings.route(number) for number in range(6)]
    assert [route and route.up_delay for route in routes] == [0, 0, 0, 0.005, 0, 0.01]
    assert [bool(route and route.up) for route in routes] == [False] * 5 + [True]


def test_a_cluster_without_devices_has_no_aggregator() -> None:
    shares = [{"name": "campus", "share": "99%"}, {"name": "village", "share": "1%"}]
    changed = SPEC | {"network": {"clusters": shares}}
    assert plan(Spec.model_validate(changed))[1].aggregators == ("aggregator-0",)


@pytest.mark.parametrize(
    ("change", "where", "text"),
    [
        ({"network": {}}, "algorithms.1", "there are no clusters: add network.clusters"),
        (
            {"algorithms": ["hierarchical", "dbw"], "devices": {"workers": 3, "servers": 2}},
            "devices.servers",
            "dbw decides for all parameters at once, so it needs one server",
        ),
        (
            {"algorithms": [{"name": "hierarchical", "wait_for": 4}]},
            "algorithms.0",
            "wait_for is 4, and there are only 3 workers",
        ),
    ],
)
def test_what_does_not_work_is_refused(
    change: dict[str, Any], where: str, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "tree.yaml"
    path.write_text(yaml.safe_dump(SPEC | change))
    with pytest.raises(SpecError) as refused:
        load(path)
    assert where in str(refused.value)
    assert text in str(refused.value)


FREEZE = {"when": {"time": "1s"}, "how": "freeze"}
FOR_ALL: dict[str, dict[str, Any]] = {
    "suspect_after": {"devices": {"workers": 3, "suspect_after": "9s"}},
    "leaves": {"devices": {"workers": 3, "leaves": "9s"}},
    "arrives": {
        "devices": {"workers": 3, "classes": [{"name": "a", "number": 3, "arrives": "1s"}]}
    },
    "faults of a class": {
        "devices": {"workers": 3, "classes": [{"name": "a", "number": 3, "faults": [FREEZE]}]}
    },
    "faults": {"faults": [FREEZE]},
}
WAYS = [{"engine": "simulation"}, {"engine": "emulation"}, {"engine": "emulation", "clock": "wall"}]


@pytest.mark.parametrize("feature", FOR_ALL)
def test_what_strikes_devices_works_with_aggregators(feature: str, tmp_path: Path) -> None:
    path = tmp_path / "tree.yaml"
    for way in WAYS:
        path.write_text(yaml.safe_dump(SPEC | FOR_ALL[feature] | way))
        load(path)


FROZEN: dict[str, Any] = {"when": {"time": "1s"}, "how": "freeze", "lasting": "2s"}
STRUCK = SPEC | {"algorithms": ["hierarchical"]}


def of_devices(*names: str, **changes: Any) -> dict[str, Any]:
    return {"who": {"devices": list(names)}, **FROZEN, **changes}


def test_a_fault_strikes_aggregators_by_their_numbers_after_the_workers() -> None:
    spec = STRUCK | {"faults": [of_devices("aggregator-1", "aggregator-0")]}
    (tree,) = plan(Spec.model_validate(spec))
    (rule,) = tree.settings.faults.rules
    assert list(rule.devices) == [3, 4]
    assert "aggregator-0, aggregator-1: freeze, at 1 s, for 2 s" in describe(tree)[1]


@pytest.mark.parametrize("how", ["freeze", "kill", "stop-network", "partition"])
@pytest.mark.parametrize("lasting", ["2s", None])
def test_any_fault_strikes_aggregators_by_the_wall_clock(how: str, lasting: str | None) -> None:
    fault = of_devices("aggregator-0", how=how, lasting=lasting)
    spec = STRUCK | {"faults": [fault], "clock": "wall", "engine": "emulation"}
    (tree,) = plan(Spec.model_validate(spec))
    assert f"aggregator-0: {how}, at 1 s" in describe(tree)[1]


@pytest.mark.parametrize(
    ("fault", "changes", "text"),
    [
        (of_devices("aggregator-0", how="kill"), {}, "use freeze, or `clock: wall`"),
        (of_devices("aggregator-0", when={"probability": 0.1}), {}, "give a time or an iteration"),
        (of_devices("aggregator-0", how={"kind": "slow", "factor": 2}), {}, "an uplink or a"),
        (of_devices("aggregator-0", "worker-0"), {}, "strikes aggregators and workers"),
        (of_devices("aggregator-0", "server"), {}, "strikes servers and aggregators"),
        (of_devices("aggregator-0"), {"algorithms": ["sync-sgd"]}, "'sync-sgd' has no aggregators"),
        (of_devices("aggregator-2"), {}, "the run has aggregator-0 to aggregator-1"),
    ],
    ids=str,
)
def test_what_aggregators_cannot_have_is_refused(
    tmp_path: Path, fault: dict[str, Any], changes: dict[str, Any], text: str
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(STRUCK | {"faults": [fault]} | changes), encoding="utf-8")
    with pytest.raises(SpecError, match=text) as refused:
        plan(load(path))
    (line,) = str(refused.value).splitlines()
    assert "faults.0" in line
