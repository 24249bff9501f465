"""Benchmarks and comparisons, for example ``make bench``, ``make agree`` and ``make chaos``."""
