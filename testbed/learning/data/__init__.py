"""Datasets: fetching, reading, partitioning among devices and drawing mini-batches."""
