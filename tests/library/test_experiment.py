"""Experiments as values: other values in the place of the file's, with the same errors."""

from pathlib import Path

import numpy as np
import pytest

from testbed.errors import SpecError
from testbed.experiment.load import load
from testbed.library.experiment import Experiment

TEXT = """
name: one
dataset: digits
model: mlp
training: {updates: 30}
algorithms: [asgd, {name: adacomp, ratio: 0.01}]
devices: {workers: 3}
waiting: {distribution: constant, mean: 10ms}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "one.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_values_replace_the_files_as_on_the_command_line(path: Path) -> None:
    changed = Experiment.load(path).with_(
        {"algorithms.adacomp.ratio": 0.1}, training__updates=50, waiting__mean="200ms", seed=3
    )
    options = ["algorithms.adacomp.ratio=0.1", "training.updates=50", "waiting.mean=200ms"]
    assert changed.spec == load(path, options, 3)
    assert changed.labels == ("asgd", "adacomp-0.1")


def test_the_first_one_stays_and_the_last_value_of_a_key_counts(path: Path) -> None:
    first = Experiment.load(path)
    second = first.with_(training__updates=50)
    path.unlink()  # it has been read
    assert second.with_(training__updates=70).spec.training.updates == 70
    assert (first.spec.training.updates, second.spec.training.updates) == (30, 50)


def test_values_of_pythons_libraries_are_taken(path: Path) -> None:
    numbers = Experiment.load(path).with_(
        devices__workers=np.int64(7), algorithms=("asgd",), training__learning_rate=np.float64(0.5)
    )
    spec = numbers.spec
    assert (spec.devices.workers, spec.training.learning_rate) == (7, 0.5)
    assert numbers.labels == ("asgd",)


def test_its_text_is_an_experiment_file_with_every_default(path: Path, tmp_path: Path) -> None:
    one = Experiment.load(path).with_(seed=4)
    (written := tmp_path / "written.yaml").write_text(str(one), encoding="utf-8")
    assert load(written) == one.spec
    assert repr(one) == f"<Experiment one: {path}.with_(seed=4)>"


def test_an_experiment_can_be_written_in_the_program() -> None:
    assert Experiment.parse(TEXT).name == "one"
    with pytest.raises(SpecError, match=r"experiment:3: mdoel: unknown key; did you mean 'model'"):
        Experiment.parse("name: one\ndataset: digits\nmdoel: mlp\n")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"training.updates": -1},
            r"^with_\({'training.updates': -1}\): training.updates: must be",
        ),
        ({"trainig.updates": 1}, "trainig: unknown key; did you mean 'training'"),
        ({"algorithms.ada.ratio": 1}, "did you mean 'adacomp'"),
        ({"": 1}, "'' is no key"),
        ({"training.updates": {1, 2}}, "must be a whole number"),
    ],
)
def test_a_wrong_value_is_one_sentence_that_names_it(
    path: Path, wrong: dict[str, object], message: str
) -> None:
    with pytest.raises(SpecError, match=message) as raised:
        Experiment.load(path).with_(wrong)
    assert len(str(raised.value).splitlines()) == 1
    with pytest.raises(SpecError, match=r"^with_\(training__updates=0\): training.updates: "):
        Experiment.load(path).with_(training__updates=0)
