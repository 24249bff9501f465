"""Metrics of a run for Prometheus: its state as a plain object, the metrics read from it, HTTP."""
