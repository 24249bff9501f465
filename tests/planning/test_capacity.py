"""The resources that a run needs, and those that the host has."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import yaml

from testbed.doctor import requirements
from testbed.errors import HostError
from testbed.experiment.load import load
from testbed.experiment.sections.devices import MOST_WORKERS
from testbed.nodes import control_group
from testbed.planning import capacity, memory
from testbed.planning.capacity import Limit
from testbed.planning.plan import Plan, plan

SPEC: dict[str, Any] = {"name": "room", "dataset": "digits", "training": {"updates": 10}}
VECTOR = 4 * 211_690
REPOSITORY = Path(__file__).parents[2]
SIMULATED = ("engine=simulation", "clock=virtual", "compute.mean=1ms", "model=cnn")
ADACOMP = {"name": "adacomp", "ratio": 0.01}


def _plan(folder: Path, workers: int, algorithm: Any, *overrides: str) -> Plan:
    spec = folder / "spec.yaml"
    content = SPEC | {"algorithms": [algorithm], "devices": {"workers": workers}}
    spec.write_text(yaml.safe_dump(content))
    (one,) = plan(load(spec, overrides, None))
    return one


@pytest.mark.parametrize(
    ("algorithm", "vectors"),
    [
        ("asgd", 2),  # the version at which it computes, and its gradient until that has arrived
        ({"name": "comp-asgd", "ratio": 0.01}, 1),
        # Of a residual there are two on several processors, and of a momentum.
        ({"name": "comp-asgd", "ratio": 0.01, "error_feedback": True}, 3),
        (ADACOMP, 2),  # the server's counters at that version
        ({"name": "adacomp", "ratio": 0.01, "error_feedback": True, "momentum": 0.9}, 6),
        ({"name": "sa", "momentum": 0.9}, 2),  # the server's momentum is one for all workers
        ("ga", 3),  # and what the worker was sent, θ^i
        ({"name": "dana", "ratio": 0.01, "error_feedback": True}, 4),
        ("dana-ga", 4),  # v^i and θ^i
    ],
)
def test_a_simulated_worker_takes_the_vectors_of_its_algorithm(
    tmp_path: Path, algorithm: Any, vectors: int
) -> None:
    small, large = (_plan(tmp_path, n, algorithm, *SIMULATED).memory for n in (10, 1010))
    assert large - small == 1000 * (memory.SIMULATED + vectors * VECTOR)


def test_on_one_processor_a_residual_is_there_once_and_each_further_process_takes_its_memory(
    tmp_path: Path,
) -> None:
    feedback = {"name": "comp-asgd", "ratio": 0.01, "error_feedback": True}
    one, two, four = (
        _plan(tmp_path, 10, feedback, *SIMULATED, f"simulation.processors={n}").memory
        for n in (1, 2, 4)
    )
    assert two - one == memory.PROCESS + 12 * VECTOR
    assert four - two == 2 * memory.PROCESS


@pytest.mark.parametrize(("algorithm", "vectors"), [("asgd", 2), (ADACOMP, 3)])
def test_an_emulated_worker_takes_the_memory_that_the_docs_give(
    tmp_path: Path, algorithm: Any, vectors: int
) -> None:
    small, large = (_plan(tmp_path, n, algorithm, "model=cnn").memory for n in (10, 1010))
    assert large - small == 1000 * (memory.NODE + vectors * VECTOR)
    page = (REPOSITORY / "docs/scale.md").read_text(encoding="utf-8")
    node, started = (size // memory.MIB for size in (memory.NODE, memory.STARTED))
    assert (
        f"| memory | {node} MiB, and 2 to 4 vectors of the model's parameters; {started} MiB"
        in page
    )


def test_as_many_workers_fit_as_the_docs_and_the_error_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimate, the documentation and the error message give the same number."""
    page = (REPOSITORY / "docs/clocks.md").read_text(encoding="utf-8")
    assert "Eight thousand workers of the CNN fit into 16 GB" in page
    there = SimpleNamespace(available=16 * 10**9)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: there)
    requirements.check_memory([_plan(tmp_path, 8000, ADACOMP, *SIMULATED)])
    with pytest.raises(HostError, match="enough for") as refused:
        requirements.check_memory([_plan(tmp_path, 9000, ADACOMP, *SIMULATED)])
    fit = int(str(refused.value).partition("enough for ")[2].partition(":")[0].replace(",", ""))
    requirements.check_memory([_plan(tmp_path, fit, ADACOMP, *SIMULATED)])
    with pytest.raises(HostError, match=r"devices\.workers"):
        requirements.check_memory([_plan(tmp_path, fit + 1, ADACOMP, *SIMULATED)])


def test_the_scarcest_resource_is_the_limit() -> None:
    few = Limit("few", room=100, per_run=10, per_device=20, remedy="more")
    many = Limit("many", room=float(10**6), per_run=10, per_device=20, remedy="none")
    assert few.devices == 4  # 10 + 4 × 20 = 90 fit, and 110 do not
    assert capacity.least((many, few)) is few
    assert Limit("none", 5, 10, 1, "").devices == 0


def test_the_limits_of_the_host_are_read() -> None:
    for limit in (capacity.files(), capacity.processes(), capacity.addresses()):
        assert limit.devices > 5, limit
        assert limit.remedy


def test_too_many_processes_are_refused() -> None:
    told = r"2,000,000,064 processes and threads, and .*(pid_max|threads-max|pids|ulimit)"
    with pytest.raises(HostError, match=told):
        requirements.check_processes(10**9)


def test_too_little_memory_is_refused(tmp_path: Path) -> None:
    """The error says how many workers fit, and how much memory all of them need."""
    workers = MOST_WORKERS
    one = _plan(tmp_path, workers, "asgd", *SIMULATED)
    with pytest.raises(HostError, match=r"devices\.workers") as refused:
        requirements.check_memory([one])
    text = str(refused.value)
    fit = int(text.partition("enough for ")[2].partition(":")[0].replace(",", ""))
    assert 0 <= fit < workers
    assert f"{one.memory / 2**30:.1f} GiB" in text


V1, V2 = ("memory.limit_in_bytes", "memory.usage_in_bytes"), ("memory.max", "memory.current")


@pytest.mark.parametrize(
    ("names", "cache", "unlimited"),
    [(V1, "total_inactive_file", 2**63 - 4096), (V2, "inactive_file", "max")],
)
def test_memory_is_what_the_tightest_control_group_leaves(
    names: Sequence[str],
    cache: str,
    unlimited: int | str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a container with a limit, where /proc/meminfo is the whole host's."""

    def write(group: Path, *values: int | str) -> None:
        group.mkdir(exist_ok=True)
        for name, value in zip(names, values, strict=True):
            (group / name).write_text(f"{value}\n")
        (group / "memory.stat").write_text(f"anon 1\n{cache} 1000\n")

    own = control_group.ControlGroup(tmp_path / "limited" / "own", 1)
    monkeypatch.setattr(control_group, "own_groups", lambda controller: [own])
    write(tmp_path / "limited", 50_000, 20_000)
    write(own.path, unlimited, 10_000)
    limit = capacity.memory(1_000, 10_000)
    assert (limit.room, limit.devices) == (31_000, 3)
    assert limit.remedy.startswith(
        f"raise {names[0]} of the control group {tmp_path / 'limited'}, "
    )
    write(tmp_path / "limited", unlimited, 20_000)
    assert capacity.memory(1_000, 10_000).remedy == "use fewer workers (devices.workers)"
