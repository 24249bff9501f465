"""The models: the number, the order and the initial values of their parameters."""

import numpy as np
import pytest
import torch

from testbed.learning.models import MODELS, initialise, layout, structure


@pytest.mark.parametrize(
    ("model", "total"), [("cnn", 211_690), ("mlp", 109_386), ("mlp-large", 669_706)]
)
def test_models_have_the_known_numbers_of_parameters(model: str, total: int) -> None:
    assert layout(model).total == total
    assert len(initialise(model, "paper", np.random.default_rng(0))) == total


def test_the_cnn_has_the_known_tensors_in_order() -> None:
    assert layout("cnn").sizes == (288, 32, 9216, 32, 200_704, 128, 1280, 10)
    assert layout("cnn").names[:2] == ("conv1.weight", "conv1.bias")


@pytest.mark.parametrize("model", MODELS)
def test_the_paper_s_initialisation_is_a_truncated_normal(model: str) -> None:
    values = initialise(model, "paper", np.random.default_rng(1))
    assert values.dtype == np.float32
    for name, part in zip(layout(model).names, layout(model).slices, strict=True):
        if name.endswith("bias"):
            assert (values[part] == np.float32(0.1)).all()
        else:
            assert np.abs(values[part]).max() <= np.float32(0.2)
            # a normal truncated at 2σ has a deviation of 0.8796 σ
            size = part.stop - part.start
            assert abs(values[part].std() - 0.08796) < 0.2 / np.sqrt(size)
            assert abs(values[part].mean()) < 0.4 / np.sqrt(size)


@pytest.mark.parametrize("model", MODELS)
def test_torch_s_initialisation_has_the_ranges_of_torch(model: str) -> None:
    values = initialise(model, "torch", np.random.default_rng(1))
    torch.manual_seed(0)
    for part, own in zip(layout(model).slices, MODELS[model]().parameters(), strict=True):
        if own.numel() >= 1000:
            assert values[part].max() == pytest.approx(float(own.detach().max()), rel=0.02)
            assert values[part].min() == pytest.approx(float(own.detach().min()), rel=0.02)
            assert values[part].std() == pytest.approx(float(own.detach().std()), rel=0.05)
        else:
            assert np.abs(values[part]).max() < 1.5 * float(own.detach().abs().max())


@pytest.mark.parametrize("law", ["paper", "torch"])
def test_equal_generators_give_equal_parameters(law: str) -> None:
    def draw(seed: int) -> bytes:
        generator = np.random.default_rng(seed)
        assert law in ("paper", "torch")
        return initialise("mlp", law, generator).tobytes()  # type: ignore[arg-type]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_a_model_with_state_outside_its_parameters_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(MODELS, "normalised", lambda: torch.nn.BatchNorm1d(3))
    with pytest.raises(ValueError, match=r"'normalised' keeps state .*running_mean"):
        structure("normalised")
