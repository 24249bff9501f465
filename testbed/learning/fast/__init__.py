"""Layers, chains of layers and inference without autograd, for the same gradients in less time."""
