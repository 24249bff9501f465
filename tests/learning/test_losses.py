"""Losses and measures, and the Transformer that the next-token loss is for."""

import math
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.errors import SpecError
from testbed.learning.description import describe
from testbed.learning.inputs import GREY_28, Inputs
from testbed.learning.learner import Learner
from testbed.learning.losses import Loss, Measure, function_named, loss_named
from testbed.learning.models import drawn, initialise, model_named
from testbed.learning.transformer import transformer

TOKENS = Inputs((7,), 11, tokens=True)
LANGUAGE = loss_named(None, {}, Measure("perplexity"), TOKENS)
SMALL = model_named("transformer", {"layers": 2, "width": 8, "heads": 2})


def learner(batch_size: int = 4) -> Learner:
    made = Learner(SMALL, batch_size, inputs=TOKENS, loss=LANGUAGE)
    generator = np.random.default_rng(1)
    made.parameters[:] = initialise(SMALL, "module", generator, TOKENS)
    return made


def rows(count: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(2)
    return generator.integers(11, size=(count, 7)), generator.integers(11, size=(count, 7))


def logits(of: Learner, tokens: np.ndarray) -> Tensor:
    module = drawn(SMALL, TOKENS, 1)
    nn.utils.vector_to_parameters(torch.from_numpy(of.parameters.copy()), module.parameters())
    with torch.no_grad():
        result: Tensor = module(torch.from_numpy(tokens))
    return result


def test_the_loss_of_tokens_is_the_mean_over_all_positions() -> None:
    one, (tokens, targets) = learner(), rows(4)
    gradient, loss = one.gradient(tokens, targets)
    each = [
        -functional.log_softmax(outputs[position], 0)[targets[row, position]]
        for row, outputs in enumerate(logits(one, tokens))
        for position in range(7)
    ]
    assert loss == pytest.approx(float(torch.stack(each).mean()), rel=1e-5)
    step = 1e-2 * gradient / np.linalg.norm(gradient)
    one.parameters -= step
    assert one.evaluate(tokens, targets).loss < loss


def test_an_evaluation_of_tokens_has_accuracy_and_perplexity_of_positions() -> None:
    one, (tokens, targets) = learner(), rows(9)
    whole, parts = one.evaluate(tokens, targets), one.evaluate(tokens, targets, batch=2)
    found = logits(one, tokens)
    right = (found.argmax(2).numpy() == targets).mean()
    assert whole.accuracy == pytest.approx(100 * right)
    assert whole.measured == pytest.approx(math.exp(whole.loss))
    assert parts.loss == pytest.approx(whole.loss, rel=1e-5)
    assert parts.accuracy == whole.accuracy


def test_a_position_sees_none_after_it() -> None:
    one, (tokens, _) = learner(), rows(1)
    changed = tokens.copy()
    changed[0, 4:] = (changed[0, 4:] + 1) % 11
    before, after = logits(one, tokens)[0], logits(one, changed)[0]
    torch.testing.assert_close(before[:4], after[:4])
    assert not torch.equal(before[4:], after[4:])


def test_a_transformer_has_the_parameters_that_it_says() -> None:
    assert describe("transformer", Inputs((64,), 256, tokens=True)).parameters == 136_960
    with pytest.raises(SpecError, match=r"transformer does not take images of .*: it takes tokens"):
        describe("transformer", GREY_28)
    with pytest.raises(ValueError, match="a width of 9 cannot be shared by 2 heads"):
        transformer(TOKENS, width=9, heads=2)
    with pytest.raises(SpecError, match=r"cnn does not take examples of .*: it takes images only"):
        describe("cnn", TOKENS)


def squares(outputs: Tensor, targets: Tensor, weight: float = 1.0) -> Tensor:
    return weight * (outputs - targets).square().mean()


def farthest(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).abs().mean()


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("own_losses")
    module.squares, module.farthest, module.number = squares, farthest, 7  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_losses", module)


@pytest.mark.usefixtures("own")
def test_a_loss_and_a_measure_of_ones_own_have_no_accuracy() -> None:
    inputs = Inputs((3,), 2)
    measure = Measure("farthest", function=function_named("own_losses:farthest", {}))
    loss = loss_named("own_losses:squares", {"weight": 3.0}, measure, inputs)
    module = nn.Linear(3, 2)
    one = Learner(module, 5, inputs=inputs, loss=loss)
    assert not one.fast
    generator = np.random.default_rng(3)
    one.parameters[:] = generator.normal(size=8)
    x, y = (generator.normal(size=(5, n)).astype(np.float32) for n in (3, 2))
    gradient, value = one.gradient(x, y)
    off = x @ one.parameters[:6].reshape(2, 3).T + one.parameters[6:] - y
    assert value == pytest.approx(3 * (off**2).mean(), rel=1e-5)
    np.testing.assert_allclose(gradient[6:], 3 * off.sum(0) / 5, rtol=1e-4)
    result = one.evaluate(x, y, batch=2)
    assert math.isnan(result.accuracy)
    assert result.loss == pytest.approx(value, rel=1e-5)
    assert result.measured == pytest.approx(np.abs(off).mean(), rel=1e-5)


@pytest.mark.usefixtures("own")
def test_what_is_no_loss_is_refused() -> None:
    with pytest.raises(
        SpecError, match=r"the loss next-token is not for 1 × 28 × 28 .*: use class"
    ):
        loss_named("next-token", {}, None, GREY_28)
    with pytest.raises(SpecError, match="the loss classification is not for 7 tokens of 11"):
        loss_named("classification", {}, None, TOKENS)
    with pytest.raises(SpecError, match="is no function of outputs and targets"):
        loss_named("own_losses:number", {}, None, GREY_28)
    several = Loss("own", lambda outputs, targets: outputs)
    one = Learner(nn.Linear(3, 2), 5, inputs=Inputs((3,), 2), loss=several)
    with pytest.raises(SpecError, match=r"is \(5, 2\) and not a tensor of one value"):
        one.gradient(np.zeros((5, 3), np.float32), np.zeros((5, 2), np.float32))
