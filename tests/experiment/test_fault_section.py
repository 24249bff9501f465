"""The section ``faults``: what is accepted, and what is refused in which words."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.errors import SpecError
from testbed.experiment.load import dump, json_schema, load, load_resolved
from testbed.experiment.spec import Spec
from testbed.planning.plan import plan

VIRTUAL = {"clock": "virtual", "compute": {"mean": "1s"}}
GOES_ON = VIRTUAL | {"engine": "simulation", "checkpoints": {"every": 5}}
"""Settings with which a server may be killed."""


def written(folder: Path, faults: list[Any], **changes: Any) -> Path:
    spec = {
        "name": "faulty",
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": 10},
        "algorithms": ["asgd"],
        "devices": {"workers": 20},
        "faults": faults,
    }
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(spec | changes))
    return path


def test_a_dump_makes_an_equal_spec(tmp_path: Path) -> None:
    faults = [
        {"when": {"probability": 0.0004}, "how": "freeze"},
        {"who": {"share": "10%"}, "when": {"time": "20s"}, "how": {"kind": "slow", "factor": 5}},
        {"who": "server", "when": {"mean_time": "60s"}, "how": "kill"},
        {
            "who": {"devices": ["worker-3"]},
            "when": {"iteration": 5},
            "how": "kill",
            "lasting": "3s",
        },
    ]
    spec = load(written(tmp_path, faults, **GOES_ON))
    resolved = tmp_path / "resolved.yaml"
    resolved.write_text(dump(spec))
    assert load_resolved(resolved) == spec
    assert Spec.model_validate(spec.model_dump(mode="json")) == spec
    assert yaml.safe_load(dump(spec))["faults"][0]["who"] == "each"
    assert yaml.safe_load(dump(spec))["faults"][0]["how"] == "freeze"


AT = {"time": "1s"}


@pytest.mark.parametrize(
    ("fault", "where", "text"),
    [
        ({"when": {"probability": 2}, "how": "freeze"}, "0.when.probability", "at most 1"),
        ({"when": AT, "how": "frezze"}, "0.how", "did you mean 'freeze'?"),
        ({"when": AT, "how": "crash"}, "0.how", "did you mean 'kill'?"),
        ({"when": AT, "how": "freeze", "who": "eahc"}, "0.who", "did you mean 'each'?"),
        ({"when": AT, "how": "freeze", "who": {"shar": 1}}, "0.who.shar", "'share'?"),
        ({"when": AT, "how": "freeze", "who": {}}, "0.who", "one of number"),
        ({"when": AT, "how": "freeze", "who": {"number": 21}}, "0.who.number", "only 20 workers"),
        ({"when": AT, "how": "freeze", "who": {"class": "a"}}, "0.who.class", "no class 'a'"),
        (
            {"when": AT, "how": "freeze", "who": {"devices": ["worker-20"]}},
            "0.who.devices.0",
            "worker-0 to worker-19",
        ),
        ({"when": AT, "how": "freeze", "who": "server"}, "0", "use `how: kill`"),
        ({"when": {"probability": 0.1}, "how": "kill", "who": "server"}, "0", "pushes nothing"),
        ({"when": {"time": "1s", "iteration": 3}, "how": "kill"}, "0.when", "one of probability"),
        ({"when": {"mean_time": "0s"}, "how": "kill"}, "0.when.mean_time", "more than 0"),
        ({"when": {"probability": 0.1}, "how": "partition"}, "0", "stop-network"),
        ({"when": AT, "how": "kill", "lasting": "0s"}, "0", "nothing would happen"),
        ({"when": AT, "how": "slow"}, "0.how", "factor: 5"),
        ({"when": AT, "how": {"kind": "kill", "factor": 2}}, "0.how.factor", "an option of 'slow'"),
        ({"when": AT, "how": {"factor": 2}}, "0.how", "has no 'kind': give it one of freeze, "),
        (
            {"when": AT, "how": "corrupt"},
            "0.how.share",
            "'corrupt' needs it; for example `share: 1%`",
        ),
        ({"when": {"timme": "1s"}, "how": "kill"}, "0.when.timme", "did you mean 'time'?"),
        ({"when": {"time": "1s", "x": 1}, "how": "kill"}, "0.when.x", "unknown key"),
        ({"when": {}, "how": "kill"}, "0.when", "must be one of probability, time, "),
        ({"when": 3, "how": "kill"}, "0.when", "must be one of probability, time, "),
        ({"when": AT, "how": 3}, "0.how", "must be a name or a mapping, not 3"),
        ({"when": AT, "how": {"kind": "slow", "cpus": 1}}, "0.how.cpus", "only containers"),
        ({"when": {"trace": "none.csv"}, "how": "kill"}, "0.when.trace", "no file 'none.csv'"),
        ({"how": "kill"}, "0.when", "is missing"),
    ],
)
def test_an_impossible_fault_is_refused_with_its_place(
    tmp_path: Path, fault: dict[str, Any], where: str, text: str
) -> None:
    with pytest.raises(SpecError) as refused:
        load(written(tmp_path, [fault]))
    (line,) = str(refused.value).splitlines()
    assert f": faults.{where}: " in line
    assert text in line


@pytest.mark.parametrize(
    ("how", "where"),
    [({"kind": "corrupt", "share": 0.1}, "how"), ({"kind": "slow", "cpus": 1}, "how.cpus")],
)
def test_the_virtual_clock_refuses_corruption_and_cpu_limits(
    tmp_path: Path, how: Any, where: str
) -> None:
    with pytest.raises(SpecError, match=f"faults.0.{where}: .*virtual clock"):
        load(written(tmp_path, [{"when": AT, "how": how}], **VIRTUAL))


@pytest.mark.parametrize(
    ("fault", "where", "text"),
    [
        (
            {"how": "kill", "when": {"probability": 0.1}},
            "when",
            "one of time, mean_time, iteration",
        ),
        ({"how": "kill", "who": "server"}, "who", "has no server: name workers"),
    ],
)
def test_what_peers_cannot_have(
    tmp_path: Path, fault: dict[str, Any], where: str, text: str
) -> None:
    with pytest.raises(SpecError, match=f"faults.0.{where}: .*{text}"):
        load(written(tmp_path, [{"when": AT} | fault], algorithms=["asgd", "all-to-all"]))


@pytest.mark.parametrize(
    ("how", "does"),
    [
        ("kill", "kill"),
        ("stop-network", "cut off"),
        ("partition", "cut off"),
        ("freeze", "stop for good"),
    ],
)
def test_the_evaluated_peer_stays_in_the_run(tmp_path: Path, how: str, does: str) -> None:
    fault = {"who": {"devices": ["worker-1"]}, "when": AT, "how": how}
    changes: dict[str, Any] = {"algorithms": ["all-to-all"], "evaluation": {"peer": 1}}
    with pytest.raises(
        SpecError, match=rf"faults.0: it would {does} peer-1, whose model is evaluated"
    ):
        plan(load(written(tmp_path, [fault], **changes)))
    changes["evaluation"] = {"peer": 0}
    (planned,) = plan(load(written(tmp_path, [fault], **changes)))
    assert planned.settings.faults.rules[0].devices == [1]


def test_no_row_of_a_trace_cuts_the_evaluated_peer_off(tmp_path: Path) -> None:
    trace = tmp_path / "struck.csv"
    fault = {"when": {"trace": "struck.csv"}, "how": "kill", "lasting": "1s"}
    peers: dict[str, Any] = {"algorithms": ["all-to-all"]}
    trace.write_text("device,time,kind\nworker-1,1,kill\nworker-0,2,freeze\n", encoding="utf-8")
    plan(load(written(tmp_path, [fault], **peers)))
    trace.write_text("device,time,kind\nworker-1,1,kill\nworker-0,2,partition\n", encoding="utf-8")
    with pytest.raises(SpecError, match=r"faults.0: it would cut off peer-0, whose model is evalu"):
        plan(load(written(tmp_path, [fault], **peers)))


def test_the_evaluated_peer_is_there_all_the_time(tmp_path: Path) -> None:
    classes = [{"name": "core", "number": 1}, {"name": "late", "number": 3, "arrives": "1s"}]
    changes: dict[str, Any] = {"algorithms": ["all-to-all"]}
    changes["devices"] = {"workers": 4, "classes": classes}
    refused = []
    for peer in range(4):
        changes["evaluation"] = {"peer": peer}
        try:
            plan(load(written(tmp_path, [], **changes)))
        except SpecError as error:
            refused.append(f"{error}")
        else:
            there = peer
    assert len(refused) == 3
    assert all(f"write `evaluation: {{peer: {there}}}`" in text for text in refused)


@pytest.mark.parametrize(
    ("faults", "devices", "where"),
    [
        ([{"when": AT, "how": "kill"}], {}, "faults.0.how"),
        ([{"when": {"trace": "struck.csv"}, "how": "freeze"}], {}, "faults.0.when"),
        ([], {"leaves": "1s"}, "devices"),
        ([], {"classes": [{"name": "late", "share": "100%", "arrives": "1s"}]}, "devices"),
    ],
)
def test_a_ring_waits_for_every_device(
    tmp_path: Path, faults: list[Any], devices: dict[str, Any], where: str
) -> None:
    (tmp_path / "struck.csv").write_text("device,time\nworker-1,1\n", encoding="utf-8")
    sections = {"algorithms": ["ring"], "devices": {"workers": 4} | devices}
    with pytest.raises(SpecError, match=rf": {where}: .*'ring'"):
        load(written(tmp_path, faults, **sections))


def test_a_trace_is_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "struck.csv").write_text("time,device\n3.5,worker-2\n")
    spec = load(written(tmp_path, [{"when": {"trace": "struck.csv"}, "how": "kill"}]))
    assert spec.faults[0].when.model_dump() == {"trace": str(tmp_path / "struck.csv")}
    by_server = {"who": "server", "when": {"trace": "struck.csv"}, "how": "kill"}
    with pytest.raises(SpecError, match="take 'who' out"):
        load(written(tmp_path, [by_server]))


def test_a_trace_in_an_option_is_relative_to_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "struck.csv").write_text("iteration,device\n3,worker-2\n")
    monkeypatch.chdir(here)
    path = written(tmp_path, [{"when": AT, "how": "kill"}])
    spec = load(path, ["faults=[{when: {trace: struck.csv}, how: kill}]"])
    found = {"trace": str(here / "struck.csv")}
    assert spec.faults[0].when.model_dump() == found
    fault = "{when: {trace: struck.csv}, how: kill}"
    spec = load(path, ["devices.classes=[{name: a, share: 100%, faults: [" + fault + "]}]"])
    assert spec.devices.classes[0].faults[0].when.model_dump() == found


def test_a_key_without_a_value_counts_as_left_out(tmp_path: Path) -> None:
    fault = {"who": {"number": 2, "share": None}, "when": AT | {"trace": None}}
    how = {"kind": "slow", "factor": 2, "share": None}
    spec = load(written(tmp_path, [fault | {"how": how}]))
    assert spec.faults[0].model_dump() == {
        "who": {"number": 2},
        "when": {"time": 1},
        "how": {"kind": "slow", "factor": 2},
        "lasting": None,
    }


def test_the_schema_has_the_alternatives_of_a_fault() -> None:
    definitions = json_schema()["$defs"]
    fault = definitions["FaultSpec"]["properties"]
    short, kinds = fault["how"]["anyOf"]
    assert "freeze" in short["enum"]
    properties = [
        definitions[kind["$ref"].rpartition("/")[2]]["properties"] for kind in kinds["oneOf"]
    ]
    assert [list(one) for one in properties] == [
        ["kind"],
        ["kind", "factor", "uplink", "downlink", "cpus"],
        ["kind", "share"],
    ]
    _, who = fault["who"]["anyOf"]
    assert [key for one in who["oneOf"] for key in definitions[one["$ref"][8:]]["properties"]] == [
        "name",
        "number",
        "share",
        "class",
        "devices",
    ]


CLASSES = {
    "workers": 20,
    "classes": [
        {"name": "slow", "share": "30%", "faults": [{"when": {"mean_time": "9s"}, "how": "kill"}]},
        {"name": "fast", "share": "70%"},
    ],
}


def test_errors_in_the_faults_of_classes_are_refused(tmp_path: Path) -> None:
    fault = {"who": {"class": "slwo"}, "when": AT, "how": "freeze"}
    with pytest.raises(SpecError, match="no class 'slwo': the classes are slow, fast"):
        load(written(tmp_path, [fault], devices=CLASSES))
    own = {"when": AT, "how": {"kind": "slow", "cpus": 1}}
    named = {"workers": 20, "classes": [{"name": "a", "share": "100%", "faults": [own]}]}
    with pytest.raises(SpecError, match=r"devices.classes.0.faults.0.how.cpus: only containers"):
        load(written(tmp_path, [], devices=named))
