"""Layers, chains of layers and inference without autograd: the same gradients in less time."""
