"""Which hosts the devices of a plan are on."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.device_names import HOME_HOST
from testbed.errors import SpecError
from testbed.experiment.load import load_any
from testbed.orchestrator.hosts.hosts_file import HostsFile
from testbed.orchestrator.hosts.spread import placed, problem_of
from testbed.planning.plans import plans_of
from testbed.planning.program_plan import ProgramPlan, files_read
from tests.metrics.running import planned

PROGRAMS = """
name: several
programs:
  work: {on: workers, run: sh code.py}
  job: {on: client, run: "sleep 1", ends: run}
  own: {on: worker-1, run: ./code.py}
files: [code.py]
reads: [/]
nodes: [client]
"""


def test_a_worker_on_the_machine_of_a_server_stays_at_home() -> None:
    devices = {"workers": 6, "servers": 3, "placement": "co-located"}
    plan = planned(devices=devices)
    assert problem_of(plan) is None
    file = HostsFile("10.0.0.1", ())
    # Without servers on their machines worker-2 and worker-3 would be on b.
    place = placed(file, plan, {HOME_HOST: 2, "b": 2, "c": 2})
    assert place == {"worker-3": "b", "worker-4": "c", "worker-5": "c"}
    named = replace(file, place={"worker-2..5": "b"})
    with pytest.raises(SpecError, match="worker-2 is on the machine of server-2, and stays"):
        placed(named, plan, {HOME_HOST: 2, "b": 2})


def test_the_server_and_further_nodes_of_programs_stay_at_home(tmp_path: Path) -> None:
    (tmp_path / "code.py").touch()
    spec = tmp_path / "spec.yaml"
    spec.write_text(PROGRAMS + "devices: {workers: 2}\n")
    (plan,) = plans_of(load_any(spec))
    assert problem_of(plan) is None
    assert placed(HostsFile("10.0.0.1", ()), plan, {HOME_HOST: 1, "b": 1}) == {"worker-1": "b"}
    with pytest.raises(SpecError, match="client is no device of the experiment that can be on"):
        placed(HostsFile("10.0.0.1", (), {"client": "b"}), plan, {HOME_HOST: 1, "b": 1})
    assert isinstance(plan, ProgramPlan)
    shell = shutil.which("sh")
    assert files_read(plan, ["worker-1"]) == {
        str(tmp_path / "code.py"): "files",
        "/": "reads",
        shell: "programs.work.run",
    }


def test_programs_in_containers_are_not_spread(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    (tmp_path / "code.py").touch()
    spec.write_text(PROGRAMS + "devices: {workers: 2, runtime: docker}\n")
    (plan,) = plans_of(load_any(spec))
    assert problem_of(plan) == "only nodes of namespaces are spread so far, no containers"
