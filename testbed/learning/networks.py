"""The networks that the testbed comes with, as ``torch.nn`` modules for a dataset's images."""

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.learning.inputs import COLOUR_32, GREY_28, Inputs


def cnn(inputs: Inputs = GREY_28) -> nn.Module:
    """AdaComp's convolutional network (paper 001, §V-B): 211,690 parameters for 1 × 28 × 28."""
    channels, height, width = inputs.image
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 32, 3, padding=1),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(32, 32, 3, padding=1),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            dense1=nn.Linear(32 * (height // 4) * (width // 4), 128),
            relu3=nn.ReLU(),
            dense2=nn.Linear(128, inputs.classes),
        )
    )


def cnn_5x5(inputs: Inputs = GREY_28) -> nn.Module:
    """Two convolutions of 5 × 5 and two dense layers: 21,840 parameters for 1 × 28 × 28.

    The network of PyTorch's MNIST example, without its dropout. Paper 004 has such a network of unknown
    widths.
    """
    channels = inputs.image[0]
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 10, 5),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(10, 20, 5),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            dense1=nn.Linear(20 * _pixels(inputs), 50),
            relu3=nn.ReLU(),
            dense2=nn.Linear(50, inputs.classes),
        )
    )


def ako_mnist(inputs: Inputs = GREY_28) -> nn.Module:
    """Ako's network for MNIST (paper 003, §5.1): 59,590 parameters for 1 × 28 × 28.

    The paper gives the numbers of maps and units; kernels are chosen so that the third convolution
    leaves one value of each map.
    """
    return _three_convolutions(inputs, (10, 20, 100), 200)


def ako_imagenet(inputs: Inputs = COLOUR_32) -> nn.Module:
    """Ako's network for ImageNet (paper 003, §5.1), on images of any size.

    1,216,196 parameters for 3 × 32 × 32 in the paper's 100 classes. Kernels are as in ``ako_mnist``;
    images of 32 × 32 are our choice.
    """
    return _three_convolutions(inputs, (32, 64, 256), 800)


def _three_convolutions(inputs: Inputs, maps: tuple[int, int, int], units: int) -> nn.Module:
    """Return convolutions of 5 × 5, 5 × 5 and 4 × 4 with max-pools between, and two dense layers."""
    channels = inputs.image[0]
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, maps[0], 5),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(maps[0], maps[1], 5),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            conv3=nn.Conv2d(maps[1], maps[2], 4),
            relu3=nn.ReLU(),
            flatten=nn.Flatten(),
            dense1=nn.Linear(maps[2] * _pixels(inputs, last=4), units),
            relu4=nn.ReLU(),
            dense2=nn.Linear(units, inputs.classes),
        )
    )


def _pixels(inputs: Inputs, last: int = 1) -> int:
    """Return the pixels of a map after two convolutions of 5 × 5, each with a max-pool, and a last one.

    Raises:
        ValueError: there are none.
    """
    height, width = (((side - 4) // 2 - 4) // 2 - (last - 1) for side in inputs.image[1:])
    if min(height, width) < 1:
        raise ValueError("its convolutions leave nothing of them")
    return height * width


def mlp(inputs: Inputs = GREY_28) -> nn.Module:
    """The perceptron 784-128-64-10 of Shokri and Shmatikov: 109,386 parameters for 1 × 28 × 28."""
    return _perceptron(inputs, 128, 64)


def mlp_large(inputs: Inputs = GREY_28) -> nn.Module:
    """A perceptron 784-512-512-10: 669,706 parameters for 1 × 28 × 28."""
    return _perceptron(inputs, 512, 512)


def _perceptron(inputs: Inputs, *hidden: int) -> nn.Module:
    channels, height, width = inputs.image
    widths = (channels * height * width, *hidden, inputs.classes)
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    for i in range(1, len(widths)):
        layers[f"dense{i}"] = nn.Linear(widths[i - 1], widths[i])
        if i < len(widths) - 1:
            layers[f"relu{i}"] = nn.ReLU()
    return nn.Sequential(layers)


def cnn_small(inputs: Inputs = GREY_28) -> nn.Module:
    """A small network with BatchNorm and dropout: 1,922 parameters for 1 × 28 × 28."""
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(inputs.image[0], 8, 3, padding=1, bias=False),
            norm1=nn.BatchNorm2d(8),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(4),
            conv2=nn.Conv2d(8, 16, 3, padding=1, bias=False),
            norm2=nn.BatchNorm2d(16),
            relu2=nn.ReLU(),
            pool2=nn.AdaptiveAvgPool2d(2),
            flatten=nn.Flatten(),
            dropout=nn.Dropout(0.1),
            dense=nn.Linear(64, inputs.classes),
        )
    )


def resnet20(inputs: Inputs = COLOUR_32) -> nn.Module:
    """The residual network of 20 layers for CIFAR-10 (He et al. 2016, §4.2): 269,722 parameters.

    Its shortcuts have no parameters: where a block halves the image, they take every second pixel and
    fill the new channels with zeros (the paper's option A). Weights are drawn by He et al. 2015:
    normal, σ = √(2 / fan_in).
    """
    widths = (16, 32, 64)
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv=nn.Conv2d(inputs.image[0], widths[0], 3, padding=1, bias=False),
        norm=nn.BatchNorm2d(widths[0]),
        relu=nn.ReLU(),
    )
    before = widths[0]
    for stage, width in enumerate(widths, 1):
        for block in range(1, 4):
            layers[f"block{stage}_{block}"] = ResidualBlock(before, width)
            before = width
    return _ended(layers, before, inputs)


def wide_resnet_16_4(inputs: Inputs = COLOUR_32) -> nn.Module:
    """The wide residual network of 16 layers, 4 times as wide (Zagoruyko and Komodakis 2016).

    2,748,890 parameters. Norm and ReLU come before each convolution; where a block has another width,
    its shortcut is a convolution of 1 × 1. No dropout. Weights are drawn as those of ``resnet20``.
    """
    widths = (64, 128, 256)
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv=nn.Conv2d(inputs.image[0], 16, 3, padding=1, bias=False)
    )
    before = 16
    for stage, width in enumerate(widths, 1):
        for block in (1, 2):
            stride = 2 if stage > 1 and block == 1 else 1
            layers[f"block{stage}_{block}"] = WideBlock(before, width, stride)
            before = width
    layers["norm"] = nn.BatchNorm2d(before)
    layers["relu"] = nn.ReLU()
    return _ended(layers, before, inputs)


def _ended(layers: OrderedDict[str, nn.Module], width: int, inputs: Inputs) -> nn.Module:
    """Return a network with a mean over the image and a linear layer at its end, and draw weights."""
    layers["pool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    layers["dense"] = nn.Linear(width, inputs.classes)
    network = nn.Sequential(layers)
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    return network


def resnet18(inputs: Inputs = COLOUR_32) -> nn.Module:
    """ResNet-18 for small images, as DBW's experiments on CIFAR-10 have it: 11,173,962 parameters.

    Four stages of two blocks, 64 to 512 channels wide; the first convolution is 3 × 3, without the pool
    that larger images have. Shortcuts are a convolution of 1 × 1 where a stage begins.
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv=nn.Conv2d(inputs.image[0], 64, 3, padding=1, bias=False),
        norm=nn.BatchNorm2d(64),
        relu=nn.ReLU(),
    )
    before = 64
    for stage, width in enumerate((64, 128, 256, 512), 1):
        for block in range(1, 3):
            layers[f"block{stage}_{block}"] = ResidualBlock(before, width, projection=True)
            before = width
    layers["pool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    layers["dense"] = nn.Linear(before, inputs.classes)
    return nn.Sequential(layers)


class WideBlock(nn.Module):
    """Two times BatchNorm, ReLU and a convolution of 3 × 3, and a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        """Make a block whose first convolution has the stride."""
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.shortcut = (
            None if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return shortcut + convolutions of images, float32, (b, inputs, height, width)."""
        before = torch.relu(self.norm1(x))
        y = self.conv2(torch.relu(self.norm2(self.conv1(before))))
        # A shortcut with parameters takes what is normalised already.
        added: Tensor = y + (x if self.shortcut is None else self.shortcut(before))
        return added


class ResidualBlock(nn.Module):
    """Two convolutions of 3 × 3 with BatchNorm, and a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, projection: bool = False) -> None:
        """Make a block; with more outputs than inputs it halves height and width.

        Args:
            projection: the shortcut is then a convolution with BatchNorm, and has parameters.
        """
        super().__init__()
        self._stride = 1 if inputs == outputs else 2
        self.shortcut: nn.Module | None = None
        if projection and inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=2, bias=False), nn.BatchNorm2d(outputs)
            )
        self._added = outputs - inputs
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=self._stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(shortcut + convolutions) of images, float32, (b, inputs, height, width)."""
        y = torch.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        if self.shortcut is not None:
            x = self.shortcut(x)
        elif self._added:
            few = x[:, :, :: self._stride, :: self._stride]
            x = functional.pad(few, (0, 0, 0, 0, 0, self._added))
        return torch.relu(x + y)
