"""Datasets: where they come from, how they are read, shared out and drawn from."""
