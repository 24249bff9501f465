"""Experiment files of programs: what is wrong with them, and that what is written reads as it was."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from testbed.cli import plan_programs as plan_text
from testbed.containers.image import default_image
from testbed.errors import SpecError
from testbed.experiment.load import dump, json_schema_of_any, load, load_any, load_any_resolved
from testbed.experiment.model_conflicts import described
from testbed.experiment.programs_spec import ProgramsSpec
from testbed.planning import program_nodes
from testbed.planning.program_plan import missing_programs, plan_programs

REPOSITORY = Path(__file__).parents[2]
SLEEP: dict[str, Any] = {
    "name": "sleep",
    "programs": {"nap": {"on": "workers", "run": "sleep 1000"}},
    "devices": {"workers": 2},
}
DOCKER: dict[str, Any] = {"workers": 2, "runtime": "docker", "memory": "50MiB", "cpus": 0.5}
EXAMPLES = sorted((REPOSITORY / "examples" / "programs").glob("*/*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_reads_as_it_is_written(path: Path, tmp_path: Path) -> None:
    spec = load_any(path)
    assert isinstance(spec, ProgramsSpec)
    written = tmp_path / "spec.yaml"
    written.write_text(dump(spec))
    assert load_any_resolved(written) == spec
    (plan,) = plan_programs(spec)
    assert plan.instances(tmp_path, "run")


def test_what_is_run_beside_flower_has_the_network_of_its_app() -> None:
    spec = load(REPOSITORY / "examples" / "programs" / "flower" / "beside" / "sync-sgd.yaml")
    assert described(spec).parameters == 64 * 32 + 32 + 32 * 10 + 10


def test_a_file_of_programs_is_none_of_algorithms(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(SLEEP))
    with pytest.raises(SpecError, match="for files with `algorithms` only"):
        load(path)


def test_a_program_in_a_container_has_the_environment_of_its_image(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    programs = {
        "own": {"on": "workers", "image": "own:1", "after": "given"},
        "given": {"on": "server", "run": "x {index}", "environment": {"A": "{name}"}},
    }
    path.write_text(yaml.safe_dump(SLEEP | {"programs": programs, "devices": DOCKER}))
    spec = load_any(path)
    assert isinstance(spec, ProgramsSpec)
    path.write_text(dump(spec))
    assert load_any_resolved(path) == spec
    (plan,) = plan_programs(spec)
    assert plan.containers == 6
    assert plan.images == {"own": "own:1", "given": default_image()}
    given, *own = plan.instances(tmp_path, "run")
    assert [one.command for one in own] == [[], []]
    assert given.command == ["x", "0"]
    assert {name for name in given.environment if not name.startswith("TESTBED_")} == {
        "A",
        "HOME",
        "PYTHONUNBUFFERED",
    }
    nodes = program_nodes.network(plan, tmp_path)["devices"]
    assert nodes[0] == {"name": "server"}
    assert nodes[1] == {"name": "worker-0", "cpus": 0.5, "memory": 50 << 20}


def test_a_plan_tells_of_faults_of_the_curve_and_of_every_program_that_is_not_there(
    tmp_path: Path,
) -> None:
    path = tmp_path / "spec.yaml"
    programs = {
        "a": {"on": "server", "run": "no-such-one 1\n"},
        "b": {"on": "workers", "run": "no-such-two"},
        "c": {"on": "workers", "run": "sh -c true", "ready": {"command": "no-such-three"}},
        "d": {"on": "workers", "run": "own", "environment": {"PATH": str(tmp_path)}},
        "e": {"on": "workers", "run": "sh -c true", "environment": {"PATH": str(tmp_path)}},
    }
    (tmp_path / "own").touch(0o755)
    frozen = {"who": {"number": 1}, "when": {"time": "2s"}, "how": "freeze", "lasting": "1s"}
    measure = {"from": "b", "file": "rounds.jsonl"}
    content = SLEEP | {"programs": programs, "faults": [frozen], "measure": measure}
    path.write_text(yaml.safe_dump(content))
    spec = load_any(path)
    assert isinstance(spec, ProgramsSpec)
    (plan,) = plan_programs(spec)
    lines = plan_text.describe(plan)
    assert "  0. 1 of 2 workers: freeze, at 2 s, for 1 s" in lines
    assert "the curve: what b on worker-0 writes to rounds.jsonl" in lines
    assert not any("\n" in line for line in lines)
    missing = [line.partition(":")[0] for line in missing_programs(spec)]
    assert missing == [
        "programs.a.run",
        "programs.b.run",
        "programs.c.ready.command",
        "programs.e.run",
    ]


def test_keys_of_programs_are_set_from_outside(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(SLEEP))
    spec = load_any(path, ["programs.nap.environment.A='1'", "programs.nap.run=sleep 2"], 5)
    assert isinstance(spec, ProgramsSpec)
    assert (spec.seed, spec.programs["nap"].run) == (5, "sleep 2")
    assert spec.programs["nap"].environment == {"A": "1"}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"clock": "virtual"}, "clock: programs run in real devices and in real time"),
        ({"engine": "simulation"}, "engine: programs run in real devices and in real time"),
        ({"programs": {"a": {"on": "wrokers", "run": "x"}}}, "there is no device 'wrokers'"),
        ({"programs": {"a": {"on": "server", "run": "x", "after": "b"}}}, "no program 'b'"),
        ({"programs": {"a": {"on": "server", "run": "x '"}}}, "not quoted as for a shell"),
        ({"programs": {"a": {"on": "server", "run": "x {indx}"}}}, "did you mean 'index'?"),
        ({"programs": {"a": {"on": "server"}}}, "programs.a.run: is missing"),
        (
            {"programs": {"a": {"on": "server"}}, "devices": DOCKER},
            "programs.a.run: is missing: give it a command, or an `image` that starts by itself",
        ),
        (
            {"programs": {"a": {"on": "server", "run": "x", "image": "y"}}},
            "programs.a.image: only containers have it",
        ),
        (
            {
                "programs": {"a": {"on": "server", "run": "x", "python": "."}},
                "devices": DOCKER,
            },
            "programs.a.python: a container has the Python of its image",
        ),
        ({"devices": DOCKER | {"launch": "fork"}}, "devices.launch: programs have no use for it"),
        ({"programs": {"a": {"on": "server", "run": "x", "rnu": 1}}}, "did you mean 'run'?"),
        ({"programs": {}}, "programs: is empty"),
        ({"programs": {"a b": {"on": "server", "run": "x"}}}, "a program's name has up to 64"),
        ({"environment": {"A": 0}}, "environment.A: must be text, not 0: put it in quotes, '0'"),
        ({"environment": {"TESTBED_X": "0"}}, "environment.TESTBED_X: it is the testbed's own"),
        ({"environment": {"HOME": "/x"}}, "environment.HOME: it is the testbed's own"),
        (
            {
                "programs": {name: {"on": "server", "run": "x"} for name in "ab"},
                "environment": {"A": "{x}"},
            },
            "{seed}: write '{ x }' if the braces are the program's own",
        ),
        ({"files": ["absent"]}, "files.0: there is no 'absent'"),
        ({"measure": {"from": "nap", "pattern": "("}}, "is no regular expression"),
        ({"measure": {"from": "nap", "pattern": "x"}}, "has none of the named groups"),
        ({"measure": {"from": "x", "file": "y"}}, "measure.from: there is no program 'x'"),
        ({"measure": {"from": "nap"}}, "give it one of pattern and file"),
        ({"devices": {"workers": 2, "servers": 2}}, "devices.servers: programs have no use"),
        ({"algorithms": ["asgd"]}, "take one of them out"),
        ({"nodes": ["server"]}, "nodes.0.name: 'server' is a name of the testbed's own"),
        *(
            ({"nodes": [name]}, f"nodes.0.name: '{name}' cannot be the name of a host")
            for name in ("localhost", "7", "0x1F", "a_b", "a.b", 64 * "a")
        ),
        ({"nodes": ["5g", "a", "a"]}, "'a' is the name of two nodes"),
        (
            {"faults": [{"when": {"probability": 0.1}, "how": "kill"}]},
            "faults.0.when: the testbed does not know what programs push",
        ),
        (
            {"faults": [{"when": {"time": "1s"}, "how": {"kind": "slow", "factor": 2}}]},
            "faults.0.how.factor: durations of programs cannot be multiplied",
        ),
        ({"network": {"sysctls": {"ip_forward": 1}}}, "'ip_forward' is no setting of TCP or UDP"),
        (
            {
                "programs": {
                    "a": {"on": "server", "run": "x", "after": "b"},
                    "b": {"on": "server", "run": "x", "after": "a"},
                }
            },
            "they wait for each other (a after b after a)",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_a_sentence(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(SLEEP | changes, sort_keys=False))
    with pytest.raises(SpecError) as error:
        load_any(path)
    told = str(error.value)
    assert sentence in told
    assert told.count("\n") == 0, told


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_fits_the_schema(path: Path) -> None:
    validator = jsonschema.Draft202012Validator(json_schema_of_any())
    data = yaml.safe_load(path.read_text().replace("\n    on:", "\n    'on':"))
    validator.validate(data)
    data["programs"]["superfluous"] = {"on": "server", "run": "x", "nr": 1}
    assert not validator.is_valid(data)
