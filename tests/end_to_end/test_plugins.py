"""A run with plug-ins is resumed with the code and the data that it began with."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.end_to_end.agreement import pairs
from tests.end_to_end.conftest import REPOSITORY, CommandLine, assert_one_sentence

EXAMPLE = REPOSITORY / "examples" / "plugin"
PLAIN = "mlp"
"""A model that commands know; to look at the example's own costs each of them 1.4 s of a processor."""


def experiment(folder: Path, file: str = "momentum.yaml", **change: object) -> Path:
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    path = folder / file
    data = yaml.safe_load(path.read_text())
    data |= {"engine": "simulation", "algorithms": ["rules:Momentum"], "checkpoints": {"every": 50}}
    path.write_text(yaml.safe_dump(data | change))
    return path


def interrupted(command: CommandLine, path: Path) -> Path:
    """Simulate, and return the run directory as it is if the process is killed at its end."""
    done = command.do("simulate", path, "--out", path.parent / "runs", "--no-report")
    assert done.returncode == 0, done.stderr
    (directory,) = (one.parent for one in (path.parent / "runs").glob("*/*/*/manifest.json"))
    (directory / "summary.json").unlink()
    file = directory / "manifest.json"
    file.write_text(
        json.dumps(json.loads(file.read_bytes()) | {"ended": "running", "pid": 1 << 22})
    )
    return directory


def test_a_file_that_has_changed_does_not_change_the_resumed_run(
    command: CommandLine, tmp_path: Path
) -> None:
    directory = interrupted(command, experiment(tmp_path))
    before = (directory / "parameters.npy").read_bytes()
    (tmp_path / "rules.py").write_text("raise AssertionError('this is not read')\n")
    done = command.do("resume", directory, "--no-report")
    assert done.returncode == 0, done.stderr
    assert (directory / "parameters.npy").read_bytes() == before
    assert (
        "warning: goes on with the code of rules.py with which the run began: the file"
        in done.stderr
    )


def test_an_installed_module_that_has_changed_is_noticed(
    command: CommandLine, tmp_path: Path
) -> None:
    command._environment["PYTHONPATH"] = f"{tmp_path}:{REPOSITORY}"
    path = experiment(tmp_path, plugins=[])
    directory = interrupted(command, path)
    with (tmp_path / "rules.py").open("a") as file:
        file.write("# Changed.\n")
    told = assert_one_sentence(command.do("resume", directory), 2)
    assert "was begun with other code of the plug-in rules" in told


def test_data_that_have_changed_are_noticed(command: CommandLine, tmp_path: Path) -> None:
    directory = interrupted(command, experiment(tmp_path, "pictures.yaml", model=PLAIN))
    before = (directory / "parameters.npy").read_bytes()
    stripes = (tmp_path / "stripes.csv").read_text()
    (tmp_path / "stripes.csv").write_text(stripes.replace("200", "210"))
    told = assert_one_sentence(command.do("resume", directory), 2)
    assert "was begun with other data than pictures:stripes returns here" in told
    (tmp_path / "stripes.csv").write_text(stripes)
    done = command.do("resume", directory, "--no-report")
    assert done.returncode == 0, done.stderr
    assert (directory / "parameters.npy").read_bytes() == before


@pytest.mark.real
@pytest.mark.exercises("namespaces")
def test_a_run_whose_workers_all_die_before_they_connect_ends_at_once_with_the_cause(
    command: CommandLine, tmp_path: Path
) -> None:
    path = experiment(tmp_path, engine="emulation", checkpoints={})
    rules = tmp_path / "rules.py"
    made = "        return WholeGradient()\n"
    # Only in the workers' processes: what fails everywhere is found before the start.
    failing = f"        if os.getpid() != LOADED_BY:\n            layout.size\n{made}"
    head = "import os\n\nLOADED_BY = os.getpid()\n"
    text = rules.read_text()
    rules.write_text(text.replace("import numpy as np\n", f"{head}import numpy as np\n", 1))
    rules.write_text(rules.read_text().replace(made, failing))
    started = command.start("run", path, "--no-report")
    assert started.wait(60) == 1, started.said
    last = started.said.splitlines()[-1]
    assert "every worker was lost after 0 of 100 updates" in last
    assert "AttributeError: 'Layout' object has no attribute 'size'; see " in last


def change(path: Path, old: str, new: str) -> None:
    rules = path.parent / "rules.py"
    rules.write_text(rules.read_text().replace(old, new + old, 1))


@pytest.mark.real
@pytest.mark.exercises("namespaces")
def test_data_that_are_others_in_the_nodes_are_the_reason(
    command: CommandLine, tmp_path: Path
) -> None:
    """The process that loads them is the first of the nodes' namespace: its end is not the reason."""
    path = experiment(tmp_path, "pictures.yaml", model=PLAIN, engine="emulation", checkpoints={})
    pictures = tmp_path / "pictures.py"
    pictures.write_text(pictures.read_text().replace("default_rng(len(rows))", "default_rng()"))
    done = command.do("run", path, "--no-report")
    assert done.returncode == 1, done.stderr
    assert "its function returns other data than when the run was planned" in done.stderr


@pytest.mark.real
@pytest.mark.exercises("namespaces")
@pytest.mark.parametrize(
    ("engine", "clock"),
    [("simulation", "virtual"), ("emulation", "virtual"), ("emulation", "wall")],
)
def test_a_mistake_in_a_server_s_half_ends_the_run_with_its_place(
    engine: str, clock: str, command: CommandLine, tmp_path: Path
) -> None:
    """It is no fault of the worker whose push the half has taken, as a push out of turn is."""
    path = experiment(tmp_path, engine=engine, clock=clock, checkpoints={})
    wrong = "if self.version == 5:\n            self.parameters[:3] += update.values\n        "
    change(path, "self._velocity *= ", wrong)
    done = command.do("run", path, "--no-report")
    assert done.returncode == 1, done.stderr
    role = "the simulator" if engine == "simulation" else "the parameter server died"
    said = (
        f"failed: {role}: rules.py, line 33: ValueError: operands could not be broadcast together"
    )
    assert said in done.stderr.splitlines()[-1]
    (summary,) = command.out.glob("**/summary.json")
    assert json.loads(summary.read_text())["updates"] == 5


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ("gradient.no", "AttributeError: 'numpy.ndarray' object has no"),
        ("sys.exit(3)", "SystemExit: 3"),
    ],
)
@pytest.mark.parametrize("processors", [1, 2])
def test_a_mistake_in_a_worker_s_half_ends_a_simulation_with_its_place(
    processors: int, mistake: str, said: str, command: CommandLine, tmp_path: Path
) -> None:
    """Wherever its gradient is computed: in another process its frames are lost."""
    path = experiment(tmp_path, checkpoints={}, simulation={"processors": processors})
    # Only with gradients of images, whose border is black: what fails always is found before the start.
    half = (
        "import sys\n\n\n"
        "class Half(WholeGradient):\n"
        "    def compress(self, gradient):\n"
        "        if not gradient.all():\n"
        f"            {mistake}\n"
        "        return super().compress(gradient)\n\n\n"
    )
    change(path, "class Momentum(", half)
    rules = tmp_path / "rules.py"
    rules.write_text(rules.read_text().replace("return WholeGradient()", "return Half()"))
    place = 1 + rules.read_text().splitlines().index(f"            {mistake}")
    done = command.do("simulate", path, "--no-report")
    assert done.returncode == 1, done.stderr
    assert f"failed: the simulator: rules.py, line {place}: {said}" in done.stderr.splitlines()[-1]


def test_what_an_algorithm_raises_while_a_file_is_read_is_one_sentence(
    command: CommandLine, tmp_path: Path
) -> None:
    path = experiment(tmp_path)
    checks = "    @staticmethod\n    def check(options, conditions):\n        1 / 0\n"
    change(path, "    @staticmethod\n    def worker", checks)
    told = assert_one_sentence(command.do("plan", path), 2)
    assert "testbed: rules.py, line 47: ZeroDivisionError: division by zero" in told


@pytest.mark.real
@pytest.mark.exercises("namespaces")
def test_an_encoding_of_ones_own_ends_with_the_bits_of_the_simulator(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "plugin")
    path = tmp_path / "plugin" / "signs.yaml"
    spec = yaml.safe_load(path.read_text())
    encoding = {"encoding": "signs:Signs"}
    spec["algorithms"] = [{"name": name} | encoding for name in ("asgd", "all-to-all")]
    spec["training"]["updates"] = 30
    path.write_text(yaml.safe_dump(spec))
    found = list(pairs(path, tmp_path))
    assert [pair.differences() for pair in found] == [[], []]
    assert all(pair.emulated["traffic"]["reconciled"] for pair in found)
