"""A small decoder-only Transformer, which predicts the next token at each position of a row.

Pre-norm blocks, as in GPT-2 (Radford et al. 2019): x + attention(norm(x)), then x + mlp(norm(x)) with
GELU; learned positions; a last norm, and a linear layer without bias to the logits. Attention is
written out in products and a softmax, whose results do not depend on which fused kernel a processor
has.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.learning.inputs import Inputs


class Attention(nn.Module):
    """Causal self-attention: a position sees itself and those before it."""

    def __init__(self, width: int, heads: int) -> None:
        """Make a layer.

        Raises:
            ValueError: the width is no multiple of the heads.
        """
        super().__init__()
        if width % heads:
            raise ValueError(f"a width of {width} cannot be shared by {heads} heads")
        self._heads = heads
        self.inputs = nn.Linear(width, 3 * width)
        self.outputs = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return what each position takes from those before it, float32, (b, positions, width)."""
        batch, positions, width = x.shape
        shape = (batch, positions, 3, self._heads, width // self._heads)
        q, k, v = self.inputs(x).view(shape).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self._heads)
        later = torch.ones(positions, positions, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(later, -math.inf).softmax(-1)
        y: Tensor = self.outputs((weights @ v).transpose(1, 2).reshape(batch, positions, width))
        return y


class TransformerBlock(nn.Module):
    """Attention and a perceptron of four times the width, each added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return float32, (b, positions, width), of the same."""
        x = x + self.attention(self.norm1(x))
        y: Tensor = x + self.narrow(functional.gelu(self.widen(self.norm2(x))))
        return y


class Transformer(nn.Module):
    """Blocks between an embedding and logits."""

    def __init__(self, inputs: Inputs, layers: int, width: int, heads: int) -> None:
        super().__init__()
        (positions,) = inputs.image
        self.tokens = nn.Embedding(inputs.classes, width)
        self.positions = nn.Parameter(torch.empty(positions, width))
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.logits = nn.Linear(width, inputs.classes, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        nn.init.normal_(self.positions, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits, (b, positions, tokens), of tokens, int64, (b, positions)."""
        y: Tensor = self.logits(self.norm(self.blocks(self.tokens(tokens) + self.positions)))
        return y


def transformer(inputs: Inputs, layers: int = 2, width: int = 64, heads: int = 4) -> nn.Module:
    """Make a Transformer for rows of tokens: 136,960 parameters for 64 of 256 by default.

    Args:
        layers: the number of blocks.
        width: of the vector at each position; a multiple of ``heads``.
        heads: of each attention.

    Raises:
        ValueError: the examples are no tokens, or the width is no multiple of the heads.
    """
    if not inputs.tokens:
        raise ValueError("it takes tokens only")
    return Transformer(inputs, layers, width, heads)
