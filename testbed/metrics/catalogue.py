"""Every exported metric: name, type, labels, meaning, and how it is read from a run's state.

Names and units follow Prometheus's conventions. The number of series is bounded: only the metrics of
``WORKERS``, which are exported on request, have one per device.
"""

from testbed.metrics.device_metrics import DEVICES, WORKERS
from testbed.metrics.state import BUCKETS
from testbed.metrics.training_metrics import TRAINING

COMMON = ("run", "algorithm")
"""Labels of every metric."""
METRICS = TRAINING + DEVICES


def table() -> str:
    """Return the Markdown table of all metrics, as in ``docs/metrics.md``."""
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for metric in (*METRICS, *WORKERS):
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.meaning} |")
    bounds = ", ".join(map(str, BUCKETS))
    rows.append("")
    rows.append(f"Buckets of `testbed_update_staleness`: {bounds}, +Inf.")
    return "\n".join(rows)
