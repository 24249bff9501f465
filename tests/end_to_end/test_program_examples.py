"""The examples of programs of users, unmodified and small: they complete, and their bytes agree."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.programs import environment, example, run, struck, wrong
from tests.needs import why_no_namespaces

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces"), pytest.mark.timeout(900)]


def _with_environment(name: str) -> None:
    """Skip a test whose packages cannot be installed here."""
    if why := why_no_namespaces():
        pytest.skip(why)
    try:
        environment(name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"its packages cannot be installed here: {error}")


def small(name: str) -> dict[str, Any]:
    """Return an example's file for fewer devices and less training."""
    content = example(name)
    content["network"] = {"uplink": "100mbit", "downlink": "100mbit", "probe": False}
    content["limits"] = {"time": "4min"}
    programs, own = content["programs"], content["environment"]
    content["devices"] = {"workers": 2 if name == "flower" else 1}
    if name == "flower":
        options = "clients=2 rounds=2"
        programs["job"]["run"] = f"flwr run ./app testbed --stream --run-config '{options}'"
    else:
        own["EPOCHS"] = "1"
    if name == "mpi":
        hosts = "server,worker-0"
        words = programs["mpiexec"]["run"].split()
        words[words.index("-hosts") + 1], words[words.index("-n") + 1] = hosts, "2"
        programs["mpiexec"]["run"] = " ".join(words)
    return content


@pytest.mark.parametrize("name", ["flower", "torchrun", "mpi"])
def test_an_example_completes_and_its_bytes_agree(name: str, tmp_path: Path) -> None:
    _with_environment(name)
    ran = run(small(name), name, tmp_path)
    assert ran.status == 0, ran.errors
    assert wrong(ran) == []
    summary = ran.summary
    assert summary["updates"] > 0 and summary["best_accuracy"] > 20
    assert summary["ingress"]["wire_bytes"] > 50_000


def test_a_seed_makes_one_experiment() -> None:
    assert struck(7) == struck(7)
    kinds = {str(fault["how"]) for seed in range(40) for fault in struck(seed)["faults"]}
    assert len(kinds) == 5
