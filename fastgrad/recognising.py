"""Recognise the layers that the paths without autograd support, and put them in order."""

from torch import nn

FEW_CHANNELS = 4
"""The most input channels for which gathering a convolution's patches costs less than it saves."""


def pool_first(parts: list[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    """Put each max-pool before the ReLU that precedes it."""
    for i in range(len(parts) - 1):
        if isinstance(parts[i][1], nn.ReLU) and isinstance(parts[i + 1][1], nn.MaxPool2d):
            parts[i], parts[i + 1] = parts[i + 1], parts[i]
    return parts


def plain_pool(part: nn.MaxPool2d) -> bool:
    """Return True for adjacent square windows without dilation, padding or rounding up."""
    size = side(part.kernel_size)
    plain = (part.padding, part.dilation, part.ceil_mode, part.return_indices)
    return size > 0 and side(part.stride) == size and plain == (0, 1, False, False)


def same_convolution(part: nn.Conv2d) -> bool:
    """Return True for a square kernel of odd size, output as large as the input, and one group."""
    size = side(part.kernel_size)
    same = part.padding == "same" or part.padding == (size // 2, size // 2)
    plain = (part.stride, part.dilation, part.groups, part.padding_mode)
    return size % 2 == 1 and same and plain == ((1, 1), (1, 1), 1, "zeros")


def side(size: int | tuple[int, ...] | None) -> int:
    """Return the side of a square given, as in torch, by one number or two; 0 if it is no square."""
    if isinstance(size, tuple):
        return size[0] if len(set(size)) == 1 else 0
    return size or 0
