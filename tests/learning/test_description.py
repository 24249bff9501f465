"""Descriptions of models: their size, the path of their gradients, and images that do not fit."""

import pytest
from torch import nn

from testbed.errors import SpecError
from testbed.learning.description import describe
from testbed.learning.inputs import COLOUR_32, GREY_28, Inputs
from testbed.learning.learner import Learner
from testbed.learning.models import MODELS
from testbed.learning.networks import mlp


@pytest.mark.parametrize("inputs", [GREY_28, COLOUR_32, Inputs((3, 40, 28), 7)])
@pytest.mark.parametrize("model", MODELS)
def test_a_description_is_that_of_the_learner(model: str, inputs: Inputs) -> None:
    described = describe(model, inputs)
    learner = Learner(model, 4, inputs=inputs, buffers="shared")
    assert learner.fast is (described.path == "fast")
    assert described.may_draw is (model == "cnn-small")  # the only one with dropout
    assert described.together is not described.may_draw
    assert learner.layout.total == described.vector("shared")
    assert learner.statistics.start == described.parameters == described.vector("none")


def test_a_model_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "deaf", lambda _: nn.Sequential(nn.Flatten(), nn.Linear(99, 10)))
    monkeypatch.setitem(MODELS, "mute", lambda _: nn.Flatten())
    monkeypatch.setitem(MODELS, "quick", mlp)
    assert describe("quick", COLOUR_32) == describe("mlp", COLOUR_32)
    with pytest.raises(SpecError, match=r"cnn does not take .*: it needs 4 × 4 pixels"):
        describe("cnn", Inputs((1, 8, 3), 10))
    for name in ("cnn-5x5", "ako-mnist"):
        with pytest.raises(SpecError, match="convolutions leave nothing of them"):
            describe(name, Inputs((3, 40, 12), 10))
    with pytest.raises(SpecError, match=r"deaf does not take images of 1 × 28 × 28 in 10 classes"):
        describe("deaf", GREY_28)
    with pytest.raises(SpecError, match=r"mute .*for 2 images it returns \(2, 784\)"):
        describe("mute", GREY_28)
