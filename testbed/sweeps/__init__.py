"""Sweeps: every combination of the values of some keys, run on every core of a host or of a cluster."""
