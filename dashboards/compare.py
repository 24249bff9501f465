"""The dashboard *Compare runs*: runs and algorithms side by side, also those of different times.

Runs seldom overlap in time, so their curves are drawn against ingress, updates and seconds of training.
The time range must reach back to all of them.
"""

from grafana_foundation_sdk.models import dashboard as model

from dashboards.ingress import SPEED
from dashboards.page import numbered, page, row
from dashboards.panels import bars
from dashboards.selection import last, layer, now, of, target
from dashboards.selection import row as cells
from dashboards.tables import rows
from dashboards.xy import curves

BYTES = 'layer="$layer"'
RUN = "{{algorithm}} {{run}}"
TOTAL = last("testbed_ingress_bytes_total", BYTES)
REACHED = last("testbed_target_accuracy_ingress_bytes", BYTES, 'accuracy="$target"')
BEST = f"max by (run, algorithm) (max_over_time({of('testbed_accuracy_ratio')}[$__range]))"


def _each(metric: str, *matchers: str) -> str:
    return f"max by (run, algorithm) ({of(metric, *matchers)})"


def dashboard() -> model.Dashboard:
    """Build the dashboard."""
    accuracy = ("accuracy", "percentunit", _each("testbed_accuracy_ratio"))
    ingress = (
        "PS ingress, $layer bytes",
        "decbytes",
        _each("testbed_evaluated_ingress_bytes", BYTES),
    )
    training = ("seconds of training", "s", _each("testbed_training_seconds"))
    return numbered(
        page(
            "compare",
            "Compare runs",
            "Accuracy, ingress, speed and bytes to an accuracy of runs and algorithms, side by side.",
            [layer(), target()],
        )
        .with_panel(
            rows(
                "Runs",
                "One row for each run inside the time range: its last and its best accuracy, "
                "updates, updates per second of training, ingress in the chosen bytes, and the "
                "ingress at which it first reached the chosen accuracy.",
                "decbytes",
                {
                    "accuracy": cells(last("testbed_accuracy_ratio"), "A"),
                    "best accuracy": cells(BEST, "B"),
                    "updates": cells(last("testbed_updates_total"), "C"),
                    "updates/s": cells(SPEED, "D"),
                    "ingress": cells(TOTAL, "E"),
                    "to accuracy": cells(REACHED, "F"),
                },
                size=(24, 8),
                units={
                    "accuracy": "percentunit",
                    "best accuracy": "percentunit",
                    "updates": "locale",
                    "updates/s": "suffix: /s",
                },
            )
        )
        .with_row(row("Accuracy"))
        .with_panel(
            curves(
                "Accuracy against ingress",
                "What had entered the parameter server when an evaluated version was reached, and "
                "its accuracy. Further up and left is better.",
                ingress,
                accuracy,
                size=(12, 12),
                logarithmic=True,
            )
        )
        .with_panel(
            curves(
                "Accuracy against updates",
                "The same against the version that was evaluated.",
                ("updates", "locale", _each("testbed_evaluated_updates")),
                accuracy,
                size=(12, 12),
            )
        )
        .with_row(row("Ingress and speed"))
        .with_panel(
            curves(
                "Ingress against training time",
                "Bytes into the parameter server since training began, by the host's clock.",
                training,
                (
                    "PS ingress, $layer bytes",
                    "decbytes",
                    _each("testbed_ingress_bytes_total", BYTES),
                ),
            )
        )
        .with_panel(
            curves(
                "Updates per second against training time",
                "How fast this host trained; it says nothing about the algorithm elsewhere.",
                training,
                ("updates/s", "suffix: /s", _each("testbed_updates_per_second")),
            )
        )
        .with_row(row("Bytes"))
        .with_panel(
            bars(
                "Ingress total",
                "Everything that entered the parameter server, in the chosen bytes.",
                "decbytes",
                now(TOTAL, RUN),
            )
        )
        .with_panel(
            bars(
                "Ingress to accuracy $target",
                "What had entered when a run first reached the chosen accuracy. A run that is not "
                "here has not.",
                "decbytes",
                now(REACHED, RUN),
            )
        )
        .build()
    )
