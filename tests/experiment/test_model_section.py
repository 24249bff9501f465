"""The experiment file's section ``model``: defaults by model, and conflicts with the rest."""

from pathlib import Path

import pytest

from testbed.errors import SpecError
from testbed.experiment.load import load
from testbed.experiment.sections.learning import MODELS
from testbed.learning import models
from testbed.planning.plan import plan

BASE = """
name: models
dataset: digits
training: {updates: 100}
devices: {workers: 4}
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(BASE + text)
    return path


def test_the_section_names_the_models_that_there_are() -> None:
    assert tuple(models.MODELS) == MODELS


@pytest.mark.parametrize(
    ("model", "initialisation"),
    [
        ("mlp", "paper"),
        ("cnn-small", "module"),
        ("{name: resnet20}", "module"),
        ("{name: resnet20, initialisation: torch}", "torch"),
    ],
)
def test_the_law_of_the_parameters_is_the_model_s_own(
    tmp_path: Path, model: str, initialisation: str
) -> None:
    (one,) = plan(load(written(tmp_path, f"model: {model}\nalgorithms: [asgd]\n")))
    assert one.settings.spec.model.initialisation == initialisation
    assert one.settings.spec.model.buffers == "none"


SHARED = "model: {name: cnn-small, buffers: shared}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SHARED + "algorithms: [asgd, {name: adacomp}]", "adacomp does not move buffers"),
        (SHARED + "algorithms: [all-to-all]", "all-to-all does not move buffers"),
        (
            SHARED + "network: {clusters: [{name: a, share: 100%}]}\n"
            "algorithms: [{name: hierarchical, ratio: 0.1}]",
            "hierarchical does not move buffers",
        ),
        ("model: {name: mlp, buffers: shared}\nalgorithms: [asgd]", "mlp has no buffers"),
        (
            "model: {name: resnet20, buffers: per-worker}\nengine: simulation\n"
            "compute: {distribution: constant, mean: 1s}\n"
            "simulation: {batched: true}\nalgorithms: [asgd]",
            "buffers that each worker keeps",
        ),
        (
            "model: cnn-small\nengine: simulation\ncompute: {distribution: constant, mean: 1s}\n"
            "simulation: {batched: true}\nalgorithms: [asgd]",
            "cnn-small may draw random numbers",
        ),
    ],
)
def test_what_cannot_be_right_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        load(written(tmp_path, text))


@pytest.mark.parametrize("algorithm", ["asgd", "{name: sync-sgd, wait_for: 2}"])
def test_buffers_are_shared_where_whole_gradients_are_averaged(
    tmp_path: Path, algorithm: str
) -> None:
    (one,) = plan(load(written(tmp_path, f"{SHARED}algorithms: [{algorithm}]")))
    assert one.settings.spec.model.buffers == "shared"
