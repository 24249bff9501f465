"""The dashboard *Compare runs*: runs and algorithms side by side, also those of different times.

Runs seldom overlap in time, so their curves are drawn against ingress, updates and seconds of training.
The time range must reach back to all of them.
"""

from dashboards.ingress import SPEED
from dashboards.measures import MEASURES
from dashboards.page import Dashboard, Row
from dashboards.panels import Bars
from dashboards.selection import RUN, last, layer, measure, of, target
from dashboards.tables import Table
from dashboards.xy import Against, Axis

BYTES = 'layer="$layer"'
TOTAL = last("testbed_ingress_bytes_total", BYTES)
REACHED = last("testbed_target_accuracy_ingress_bytes", BYTES, 'accuracy="$target"')
BEST = f"max by (run, algorithm) (max_over_time({of('testbed_accuracy_ratio')}[$__range]))"


def _axis(label: str, unit: str, metric: str, *matchers: str) -> Axis:
    return Axis(label, unit, f"max by (run, algorithm) ({of(metric, *matchers)})")


ACCURACY = _axis("accuracy", "percentunit", "testbed_accuracy_ratio")
SECONDS = _axis("seconds of training", "s", "testbed_training_seconds")
INGRESS = "PS ingress, $layer bytes", "decbytes"
RUNS = Row(
    "",
    8,
    (
        Table(
            "Runs",
            "One row for each run inside the time range: its last and its best accuracy, updates, "
            "updates per second of training, ingress in the chosen bytes, and the ingress at which it "
            "first reached the chosen accuracy.",
            "decbytes",
            {
                "accuracy": last("testbed_accuracy_ratio"),
                "best accuracy": BEST,
                "updates": last("testbed_updates_total"),
                "updates/s": SPEED,
                "ingress": TOTAL,
                "to accuracy": REACHED,
            },
            width=24,
            units={
                "accuracy": "percentunit",
                "best accuracy": "percentunit",
                "updates": "locale",
                "updates/s": "suffix: /s",
            },
        ),
    ),
)
ACCURACIES = Row(
    "Accuracy",
    12,
    (
        Against(
            "Accuracy against ingress",
            "What had entered the parameter server when an evaluated version was reached, and its "
            "accuracy. Further up and left is better.",
            _axis(*INGRESS, "testbed_evaluated_ingress_bytes", BYTES),
            ACCURACY,
            logarithmic=True,
        ),
        Against(
            "Accuracy against updates",
            "The same against the version that was evaluated.",
            _axis("updates", "locale", "testbed_evaluated_updates"),
            ACCURACY,
        ),
    ),
)
SPEEDS = Row(
    "Ingress and speed",
    11,
    (
        Against(
            "Ingress against training time",
            "Bytes into the parameter server since training began, by the host's clock.",
            SECONDS,
            _axis(*INGRESS, "testbed_ingress_bytes_total", BYTES),
        ),
        Against(
            "Updates per second against training time",
            "How fast this host trained; it says nothing about the algorithm elsewhere.",
            SECONDS,
            _axis("updates/s", "suffix: /s", "testbed_updates_per_second"),
        ),
    ),
)
TOTALS = Row(
    "Bytes",
    8,
    (
        Bars(
            "Ingress total",
            "Everything that entered the parameter server, in the chosen bytes.",
            "decbytes",
            {RUN: TOTAL},
        ),
        Bars(
            "Ingress to accuracy $target",
            "What had entered when a run first reached the chosen accuracy. A run that is not here "
            "has not.",
            "decbytes",
            {RUN: REACHED},
        ),
    ),
)
DASHBOARD = Dashboard(
    "compare",
    "Compare runs",
    "Accuracy, ingress, speed and bytes to an accuracy of runs and algorithms, side by side.",
    (RUNS, ACCURACIES, MEASURES, SPEEDS, TOTALS),
    (layer, target, measure),
)
