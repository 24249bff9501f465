"""The file's background traffic: what is wrong with it, and that what is written reads as it was."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.errors import SpecError
from testbed.experiment.load import dump, load, load_any, load_any_resolved
from testbed.planning import agent_network
from testbed.planning.plan import plan
from testbed.planning.plans import plans_of

ALGORITHM: dict[str, Any] = {
    "name": "small",
    "dataset": "digits",
    "model": "mlp",
    "training": {"updates": 20},
    "algorithms": ["asgd"],
    "devices": {"workers": 3},
}
PROGRAM: dict[str, Any] = {
    "name": "nap",
    "programs": {"nap": {"on": "workers", "run": "sleep 1"}},
    "devices": {"workers": 3},
    "nodes": ["client"],
}
FLOW = {"from": "worker-1", "to": "worker-2", "rate": "2mbit"}
ON_OFF = FLOW | {"law": "on-off", "on": "1s", "off": "500ms", "size": 100}
TIMED = {"compute": {"mean": "10ms"}}


def written(tmp_path: Path, content: dict[str, Any]) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


@pytest.mark.parametrize("kind", [ALGORITHM, PROGRAM])
def test_flows_read_as_they_are_written(tmp_path: Path, kind: dict[str, Any]) -> None:
    flows = [FLOW, FLOW | {"law": "poisson"}, ON_OFF]
    spec = load_any(written(tmp_path, kind | {"traffic_between": flows}))
    text = dump(spec)
    assert "- {from: worker-1, to: worker-2, law: constant, rate: 2mbit, size: 1.4kB}" in text
    (tmp_path / "resolved.yaml").write_text(text)
    assert load_any_resolved(tmp_path / "resolved.yaml") == spec
    (planned,) = plans_of(spec)
    constant, poisson, on_off = planned.background
    assert (constant.interval, poisson.law) == (1442 * 8 / 2e6, "poisson")
    assert (on_off.frame, on_off.on, on_off.off) == (142, 1.0, 0.5)


@pytest.mark.parametrize("kind", [ALGORITHM, PROGRAM])
def test_a_file_without_flows_resolves_to_one_without(tmp_path: Path, kind: dict[str, Any]) -> None:
    spec = load_any(written(tmp_path, kind))
    assert "traffic_between" not in dump(spec)
    assert spec == load_any(written(tmp_path, kind | {"traffic_between": []}))


def test_workers_are_the_peers_of_an_algorithm_without_a_server(tmp_path: Path) -> None:
    peers = ALGORITHM | {"algorithms": ["asgd", "all-to-all"], "traffic_between": [FLOW]}
    served, unserved = plans_of(load_any(written(tmp_path, peers)))
    assert served.background[0].sender == "worker-1"
    assert (unserved.background[0].sender, unserved.background[0].receiver) == ("peer-1", "peer-2")


def test_a_flow_has_a_share_of_its_own_of_links_that_devices_share(tmp_path: Path) -> None:
    clusters = [{"name": name, "share": "50%", "uplink": "10mbit"} for name in ("a", "b")]
    spec = ALGORITHM | {"devices": {"workers": 4}, "network": {"clusters": clusters}}
    flow = FLOW | {"from": "worker-0", "to": "worker-3"}
    (without,) = plan(load(written(tmp_path, spec)))
    (with_flows,) = plan(load(written(tmp_path, spec | {"traffic_between": [flow, flow]})))
    shared = {direction: set(pairs) for direction, pairs in without.shared.items()}
    own = {
        direction: set(pairs) - shared[direction] for direction, pairs in with_flows.shared.items()
    }
    link = {one.node: one.index for one in with_flows.links}
    added = {direction: pairs for direction, pairs in own.items() if pairs}
    assert added == {(link["a"], True): {("worker-0", "worker-3")}}


@pytest.mark.parametrize(
    ("kind", "changes", "sentence"),
    [
        (
            ALGORITHM,
            {"from": "worker-3"},
            "0.from: there is no device 'worker-3': there are server",
        ),
        (ALGORITHM, {"to": "sever"}, "server and worker-0 to worker-2; did you mean 'server'?"),
        (ALGORITHM, {"to": "worker-1"}, "0.to: 'worker-1' sends to itself, which crosses no link"),
        (PROGRAM, {"to": "cleint"}, "worker-0 to worker-2; did you mean 'client'?"),
        (ALGORITHM, {"law": "on-off", "on": "1s"}, "0.off: is missing: 'on-off' needs it"),
        (ALGORITHM, {"on": "1s"}, "0.on: is an option of 'on-off', and the law is 'constant'"),
        (ALGORITHM, {"law": "pareto"}, "0.law: 'pareto' is not one of constant, poisson, on-off"),
        (ALGORITHM, ON_OFF | {"off": 0}, "0.off: must be more than 0: for a flow without pauses"),
        (ALGORITHM, {"size": 1473}, "0.size: must be at least 1 and at most 1472 bytes"),
        (ALGORITHM, {"rate": "2"}, "0.rate: '2' is not a possible rate"),
        (
            ALGORITHM | {"algorithms": ["all-to-all"]},
            {"to": "server"},
            "'all-to-all' has no server",
        ),
        (
            ALGORITHM | {"devices": {"workers": 3, "servers": 2, "placement": "co-located"}},
            {"to": "server-1"},
            "0: worker-1 and server-1 are on one machine",
        ),
    ],
)
def test_what_is_wrong_with_a_flow_is_said_in_a_sentence(
    tmp_path: Path, kind: dict[str, Any], changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SpecError) as error:
        load_any(written(tmp_path, kind | {"traffic_between": [FLOW | changes]}))
    told = str(error.value)
    assert sentence in told and "traffic_between" in told
    assert told.count("\n") == 0, told


def test_there_are_not_too_many_flows(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there are 1,001 flows, and at most 1,000 can be"):
        load_any(written(tmp_path, ALGORITHM | {"traffic_between": [FLOW] * 1001}))


SIMULATED = ALGORITHM | TIMED | {"engine": "simulation"}


def test_flows_that_leave_nothing_of_a_link_are_refused_where_messages_are_computed(
    tmp_path: Path,
) -> None:
    link = {"network": {"uplink": "3mbit", "downlink": "5mbit"}}
    steady, pausing = FLOW | {"law": "poisson"}, ON_OFF | {"rate": "9mbit"}
    spec = load(written(tmp_path, SIMULATED | link | {"traffic_between": [steady, pausing]}))
    assert len(plan(spec)[0].background) == 2
    flows = [steady, FLOW | {"rate": "1mbit", "to": "server"}]
    spec = load(written(tmp_path, SIMULATED | link | {"traffic_between": flows}))
    with pytest.raises(SpecError) as error:
        plan(spec)
    assert str(error.value) == (
        "traffic_between: flows without pauses take 3mbit of the uplink of worker-1, which has "
        "3mbit, and messages would get nothing: lower their rates, or give the link a higher one"
    )
    plan(load(written(tmp_path, ALGORITHM | link | {"traffic_between": flows})))  # the wall clock


def test_a_run_whose_clock_computes_its_flows_sends_none(tmp_path: Path) -> None:
    virtual = ALGORITHM | TIMED | {"traffic_between": [FLOW]}
    for clock, is_sent in (("wall", True), ("virtual", False)):
        (planned,) = plan(load(written(tmp_path, virtual | {"clock": clock})))
        assert planned.background
        assert ("background" in agent_network.links(planned, tmp_path)) is is_sent


def test_flows_do_not_follow_the_trace_of_a_machine_with_a_server(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text("time,uplink,downlink\n0,3mbit,3mbit\n5,1mbit,1mbit\n")
    together = {"devices": {"workers": 3, "servers": 2, "placement": "co-located"}}
    traced = {"network": {"trace": {"file": str(tmp_path / "rates.csv"), "repeat": "10s"}}}
    beside = ALGORITHM | TIMED | traced | {"traffic_between": [FLOW]}
    load(written(tmp_path, beside | together))  # the wall clock
    load(written(tmp_path, beside | {"clock": "virtual"}))  # no machine has both
    with pytest.raises(SpecError, match=r"network\.trace: under the virtual clock background traf"):
        load(written(tmp_path, beside | together | {"clock": "virtual"}))
