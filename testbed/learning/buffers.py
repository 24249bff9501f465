"""The buffers of a module: what it keeps besides its parameters, such as BatchNorm's statistics.

Where they live, and whose they are, is an option of the model:

``none``
    No buffer ever changes. BatchNorm keeps no running statistics, and normalises by the mini-batch's
    own, in training and in an evaluation. Any other buffer is as the constructor made it before every
    gradient and every evaluation. Nothing about buffers travels, so this is right for every algorithm.
``shared``
    The buffers of floating-point numbers follow the parameters in the flat vector: they live at the
    server, travel with the parameters, and an evaluation reads them. A worker's gradient of them is
    (β − β′) / α, with their values β before the computation and β′ after it, and α the learning rate
    of the experiment; under a schedule the server makes it that of its own step
    (``testbed.training.shared_buffers``). An algorithm whose step is −α times a mean of whole gradients
    moves them to the mean of the workers' β′. ASGD's step is −α / max(1, σ), and moves β by
    (β′ − β) / max(1, σ): within one staleness, σ updates, by about one worker's change. β follows the
    statistics as one worker's would, and does not overshoot as long as BatchNorm's momentum is below
    1/e (torch's is 0.1).
    Rules with momentum, look-ahead or a penalty move buffers as ASGD does (``Layout.buffers``).

``per-worker``
    Each worker (or peer) keeps the buffers for itself: a gradient begins with what its last one left,
    and nothing of them travels. So this is right for every algorithm too, and for modules that read
    their buffers in training: vectors of spectral normalisation, or averages that a layer uses. The
    evaluator is no worker and has no such buffers. In an evaluation BatchNorm normalises by the
    statistics of the images that are tested at a time, as with ``none``, and other buffers are as the
    constructor made them. With BatchNorm alone, which reads its statistics in evaluations only, results
    are those of ``none``.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

Buffers: TypeAlias = Literal["none", "shared", "per-worker"]


def prepare(module: nn.Module, buffers: Buffers) -> None:
    """Take BatchNorm's running statistics away, if there are to be no buffers."""
    if buffers != "none":
        return
    for part in module.modules():
        if isinstance(part, _NormBase) and part.track_running_stats:
            part.running_mean = part.running_var = part.num_batches_tracked = None
            part.track_running_stats = False


def by_batch(module: nn.Module) -> None:
    """Have BatchNorm normalise by the statistics of its input, in an evaluation too."""
    for part in module.modules():
        if isinstance(part, _NormBase):
            part.train()


def shared_by(module: nn.Module, buffers: Buffers) -> Mapping[str, Tensor]:
    """Return the buffers in the flat vector, by their names: none unless buffers are shared.

    Raises:
        ValueError: a BatchNorm averages over all batches (its momentum is None), which the number of
            batches that each device has seen would have to be shared for.
    """
    if buffers != "shared":
        return {}
    for name, part in module.named_modules():
        if isinstance(part, _NormBase) and part.track_running_stats and part.momentum is None:
            raise ValueError(f"{name} averages its statistics over all batches (momentum=None)")
    return {name: one for name, one in module.named_buffers() if one.is_floating_point()}
