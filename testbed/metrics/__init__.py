"""What a run exports to Prometheus: its state as a plain object, the metrics read off it, HTTP."""
