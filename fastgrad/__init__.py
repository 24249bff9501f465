"""Gradients of torch models on small batches, in less time: of one model, or of many workers together.

This package knows nothing of the testbed: it is given a ``torch.nn.Module`` and mini-batches.
``gradient`` computes one model's gradient into a flat vector, for common layers without autograd
(``chain``, ``layers``, ``winograd``), and its outputs alone (``inference``). ``workers`` computes the
gradients of many workers in one call, each at its own parameters and on its own mini-batch, on a
processor or on an accelerator.
"""
