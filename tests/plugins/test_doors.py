"""What an experiment file may name, and what happens to plug-ins that misbehave: the real commands."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testbed.errors import SpecError
from testbed.learning.data.choice import FUNCTIONS
from testbed.plugins.names import find
from tests.end_to_end.conftest import CommandLine

SMALL = {
    "name": "doors",
    "dataset": "digits",
    "model": "mlp",
    "training": {"updates": 4},
    "algorithms": ["asgd"],
    "devices": {"workers": 2},
    "clock": "virtual",
    "compute": {"distribution": "exponential", "mean": "100ms"},
    "evaluation": {"every": 2},
}
RULE = """
from testbed.algorithms.asgd import StalenessDivided
from testbed.algorithms.interface import Options, ServedAlgorithm
from testbed.algorithms.worker_half import WorkerHalf

class Mute(BaseException):
    def __str__(self):
        raise RuntimeError("no text")

class Half(WorkerHalf):
    def compress(self, gradient):
        {body}

class RuleOptions(Options):
    name: str = "own:Rule"

class Rule(ServedAlgorithm):
    options_type = RuleOptions

    @staticmethod
    def worker(options, layout, conditions):
        return Half()

    @staticmethod
    def server(options, layout, parameters, conditions):
        return StalenessDivided(parameters, conditions.rate)
"""


@pytest.fixture
def command(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.close()


def written(folder: Path, keys: dict[str, object], **files: str) -> str:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    plugins = {"plugins": [f"{name}.py" for name in files]} if files else {}
    (folder / "file.yaml").write_text(yaml.safe_dump(SMALL | plugins | keys, sort_keys=False))
    return "file.yaml"


CALL = {"name": "os:system", "command": "touch opened"}
DOORS: list[dict[str, object]] = [
    {"dataset": CALL},
    {"dataset": {"name": "torch:os.system", "command": "touch opened"}},
    {"dataset": {"name": "posix:system", "command": "touch opened"}},
    {"model": {"name": "os:system"}},
    {"loss": {"name": "os:system"}},
    {"evaluation": {"every": 2, "measure": {"name": "os:system"}}},
    {"algorithms": [{"name": "antigravity:Rule"}]},
    {"compute": {"distribution": "subprocess:Popen", "mean": "100ms"}},
    {"devices": {"workers": 2, "classes": [
        {"name": "a", "share": 1, "compute": {"distribution": "subprocess:Popen", "mean": "1s"}}
    ]}},
]  # fmt: skip


@pytest.mark.parametrize("keys", DOORS, ids=str)
def test_nothing_of_python_itself_is_called_by_an_experiment_file(
    keys: dict[str, object], command: CommandLine, tmp_path: Path
) -> None:
    done = command.do("plan", written(tmp_path, keys))
    assert done.returncode == 2, done.stdout
    assert "is a part of Python" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "opened").exists()


def test_a_package_lends_nothing_of_python() -> None:
    """By the module that an object is of, whichever module it is named by."""
    assert (
        find("torch.nn.functional:cross_entropy", {}, "testbed.tests").__name__ == "cross_entropy"
    )
    for name in ("torch:os.system", "torch.hub:shutil.rmtree", "testbed.plugins.names:importlib"):
        with pytest.raises(SpecError, match="is a part of Python"):
            find(name, FUNCTIONS, "testbed.tests")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import sys\nsys.exit(3)", "own.py, line 2: SystemExit: 3"),
        ("class Own(BaseException): pass\nraise Own('no')", "own.py, line 2: Own: no"),
        (RULE.format(body="pass") + "raise Mute", "Mute: (its text cannot be had: RuntimeError)"),
    ],
)
def test_a_file_that_ends_the_process_gets_a_sentence(
    text: str, said: str, command: CommandLine, tmp_path: Path
) -> None:
    done = command.do("plan", written(tmp_path, {}, own=text))
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise Mute", "Mute: (its text cannot be had: RuntimeError)"),
    ],
)
def test_a_half_that_ends_the_process_ends_its_run(
    body: str, said: str, command: CommandLine, tmp_path: Path
) -> None:
    """And the runs after it are carried out; if its first gradient does, nothing is started."""
    keys: dict[str, object] = {"algorithms": [{"name": "own:Rule"}, "asgd"]}
    file = written(tmp_path, keys, own=RULE.format(body=body))
    done = command.do("simulate", file, "--no-report", "--json")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    later = f"""if hasattr(self, "again"):
            {body}
        self.again = True
        return WholeGradient().compress(gradient)"""
    rule = RULE.replace("import StalenessDivided", "import StalenessDivided, WholeGradient")
    file = written(tmp_path, keys, own=rule.format(body=later))
    done = command.do("simulate", file, "--no-report", "--json")
    assert done.returncode == 1, done.stderr
    assert said in done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert [one["ended"] for one in runs] == ["failed", "completed"]


def test_torch_s_own_cross_entropy_is_a_loss(command: CommandLine, tmp_path: Path) -> None:
    """Its argument of class weights, a tensor, can be no key and keeps its default."""
    loss = {"name": "torch.nn.functional:cross_entropy", "label_smoothing": 0.1}
    done = command.do("simulate", written(tmp_path, {"loss": loss}), "--no-report")
    assert done.returncode == 0, done.stderr
    refused = written(tmp_path, {"loss": {**loss, "weight": [1, 2]}})
    done = command.do("plan", refused)
    assert done.returncode == 2
    assert "weight" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_in_a_model_names_its_file_and_line(command: CommandLine, tmp_path: Path) -> None:
    nets = "from torch import nn\ndef net(inputs):\n    return nn.Linear(inputs.shape[0], 10)\n"
    done = command.do("plan", written(tmp_path, {"model": {"name": "nets:net"}}, nets=nets))
    assert done.returncode == 2
    assert (
        "nets.py, line 3: AttributeError: 'Inputs' object has no attribute 'shape'" in done.stderr
    )
    assert "use another model" not in done.stderr


def test_a_run_with_a_plug_in_is_read_without_its_code(
    command: CommandLine, tmp_path: Path
) -> None:
    """``show``, ``ls``, ``compare``, ``report`` and ``replay``; the file may be gone, or do harm."""
    text = RULE.format(body="from testbed.updates import DenseUpdate; return DenseUpdate(gradient)")
    file = written(tmp_path, {"algorithms": [{"name": "own:Rule"}]}, own=text)
    done = command.do("simulate", file, "--no-report")
    assert done.returncode == 0, done.stderr
    (spec,) = tmp_path.glob("runs/doors/*/*/spec.yaml")
    opened = "open('opened', 'w').close()\n"
    spec.write_text(spec.read_text().replace("class Mute", f"{opened}    class Mute"))
    assert opened in spec.read_text()
    (tmp_path / "own.py").write_text(opened)
    for words in (
        ("show", "doors"),
        ("ls",),
        ("compare", "doors"),
        ("report", "doors"),
        ("replay", "doors", "--speed", "0", "--metrics-port", "0", "--metrics-linger", "0s"),
    ):
        done = command.do(*words)
        assert done.returncode == 0, (words, done.stderr)
        assert not (tmp_path / "opened").exists(), words
