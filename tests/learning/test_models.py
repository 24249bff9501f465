"""The models: the number, the order and the initial values of their parameters."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from testbed.learning.inputs import COLOUR_32
from testbed.learning.models import FAST, MODELS, initialise, layout, structure


@pytest.mark.parametrize(
    ("model", "total"),
    [
        ("cnn", 211_690),
        ("mlp", 109_386),
        ("mlp-large", 669_706),
        ("cnn-5x5", 21_840),
        ("ako-mnist", 59_590),
    ],
)
def test_models_have_the_known_numbers_of_parameters(model: str, total: int) -> None:
    assert layout(model).total == total
    assert len(initialise(model, "paper", np.random.default_rng(0))) == total


def test_ako_s_network_for_imagenet_has_the_paper_s_maps_and_units() -> None:
    inputs = replace(COLOUR_32, classes=100)
    module = MODELS["ako-imagenet"](inputs)
    widths = [len(one) for name, one in module.named_parameters() if name.endswith("weight")]
    assert widths == [32, 64, 256, 800, 100]
    assert layout("ako-imagenet", inputs).total == 1_216_196
    assert module(torch.zeros(2, *inputs.image)).shape == (2, 100)


def test_the_cnn_has_the_known_tensors_in_order() -> None:
    assert layout("cnn").sizes == (288, 32, 9216, 32, 200_704, 128, 1280, 10)
    assert layout("cnn").names[:2] == ("conv1.weight", "conv1.bias")


@pytest.mark.parametrize("model", sorted(FAST))
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


@pytest.mark.parametrize("model", sorted(FAST))
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


def test_resnet20_has_the_size_and_the_initial_values_of_the_paper() -> None:
    of_all = layout("resnet20", COLOUR_32)
    assert of_all.total == 269_722
    assert layout("resnet20", COLOUR_32, "shared").total == 269_722 + 2 * (7 * 16 + 6 * 32 + 6 * 64)
    values = initialise("resnet20", "module", np.random.default_rng(1), COLOUR_32)
    for name, part in zip(of_all.names, of_all.slices, strict=True):
        if "norm" in name:
            assert (values[part] == float(name.endswith("weight"))).all()
    (last,) = (i for i, name in enumerate(of_all.names) if name == "block3_3.conv2.weight")
    deviation = values[of_all.slices[last]].std()
    assert deviation == pytest.approx(np.sqrt(2 / (9 * 64)), rel=0.02)


def test_the_wide_residual_network_has_the_papers_size_and_its_stages_halve_the_image() -> None:
    assert layout("wide-resnet-16-4", COLOUR_32).total == 2_748_890
    network = structure("wide-resnet-16-4", COLOUR_32)
    x = torch.zeros(2, 3, 32, 32, device="meta")
    shapes = []
    for name, part in network.named_children():
        x = part(x)
        if name.startswith("block"):
            shapes.append(tuple(x.shape[1:]))
    assert shapes == [
        (width, size, size) for width, size in ((64, 32), (128, 16), (256, 8)) for _ in (1, 2)
    ]


def test_shared_buffers_begin_as_the_module_makes_them() -> None:
    values = initialise("cnn-small", "torch", np.random.default_rng(1), buffers="shared")
    of_all = layout("cnn-small", buffers="shared")
    assert of_all.names[-4:] == tuple(
        f"norm{i}.running_{what}" for i in (1, 2) for what in ("mean", "var")
    )
    for name, part in zip(of_all.names, of_all.slices, strict=True):
        if "running" in name:
            assert (values[part] == float(name.endswith("var"))).all()


def test_the_constructor_s_draws_come_from_the_generator_alone() -> None:
    def draw(seed: int) -> bytes:
        torch.manual_seed(np.random.default_rng().integers(2**31))
        return initialise("resnet20", "module", np.random.default_rng(seed)).tobytes()

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)
