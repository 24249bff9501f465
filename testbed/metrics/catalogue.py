"""Every metric that is exported: name, type, labels, meaning, and how it is read off a run's state.

Names and units follow Prometheus's conventions. Labels are bounded: none but those of ``WORKERS``,
which have to be asked for, has a value per device.
"""

from testbed.metrics.device_metrics import DEVICES, WORKERS
from testbed.metrics.state import BUCKETS
from testbed.metrics.training_metrics import TRAINING

COMMON = ("run", "algorithm")
"""Labels of every metric."""
METRICS = TRAINING + DEVICES


def table() -> str:
    """All metrics as the table in Markdown that ``docs/metrics.md`` has."""
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for metric in (*METRICS, *WORKERS):
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.meaning} |")
    bounds = ", ".join(map(str, BUCKETS))
    rows.append("")
    rows.append(f"Buckets of `testbed_update_staleness`: {bounds}, +Inf.")
    return "\n".join(rows)
