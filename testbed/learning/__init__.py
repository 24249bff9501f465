"""Datasets, models and gradients; this package knows nothing of containers."""
