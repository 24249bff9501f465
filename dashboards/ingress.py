"""The dashboard *Ingress*: the bytes that enter the parameter server, and the accuracy they buy."""

from grafana_foundation_sdk.models import dashboard as model

from dashboards import colours
from dashboards.page import numbered, page, row
from dashboards.panels import bars, coloured, lines, number, phases
from dashboards.selection import RUNS, last, layer, now, of, over_time, rate, target
from dashboards.selection import row as cells
from dashboards.tables import rows
from dashboards.xy import curves

PHASES = (
    "{} * ({} == 1)".format(number, of("testbed_run_phase", f'phase="{name}"'))
    for number, name in enumerate(colours.PHASES, 1)
)
PHASE = "max by (run, algorithm) ({})".format(" or ".join(PHASES))
PROGRESS = f"{last('testbed_updates_total')} / {last('testbed_updates_target')}"
SPEED = f"{last('testbed_updates_total')} / ({last('testbed_training_seconds')} > 0)"
TALKERS = (
    "topk(10, max by (run, algorithm, worker) "
    f"(last_over_time(testbed_worker_ingress_bytes_total{{{RUNS}}}[$__range]))) "
    "* on (run, algorithm, worker) group_left (device_class) "
    "max by (run, algorithm, worker, device_class) "
    f"(last_over_time(testbed_worker_info{{{RUNS}}}[$__range]))"
)


def dashboard() -> model.Dashboard:
    """Build the dashboard."""
    of_layer = 'layer="$layer"'
    return numbered(
        page(
            "ingress",
            "Ingress",
            "Bytes that enter the parameter server, by layer, and the accuracy that they buy.",
            [layer(), target()],
        )
        .with_row(row("Now"))
        .with_panel(
            number(
                "Wire ingress",
                "Everything that entered the parameter server so far, with every header at an "
                "MTU of 1,500 and the workers' acknowledgements; among peers, all of them.",
                "decbytes",
                now(last("testbed_ingress_bytes_total", 'layer="wire"'), "{{algorithm}} {{run}}"),
            )
        )
        .with_panel(
            number(
                "Accuracy",
                "Share of the test set that the last evaluation got right.",
                "percentunit",
                now(last("testbed_accuracy_ratio"), "{{algorithm}} {{run}}"),
                thresholds=[(0, "red"), (0.5, "orange"), (0.9, "green")],
            )
        )
        .with_panel(
            number(
                "Progress",
                "Updates applied, of those that the run lasts.",
                "percentunit",
                now(PROGRESS, "{{algorithm}} {{run}}"),
            )
        )
        .with_panel(
            number(
                "Updates per second",
                "Since training began, by the host's clock: how fast this host is.",
                "suffix: /s",
                now(SPEED, "{{algorithm}} {{run}}"),
            )
        )
        .with_panel(
            phases(
                "Phase",
                "What each run was doing.",
                over_time(PHASE, "{{algorithm}} {{run}}"),
                size=(24, 5),
            )
        )
        .with_row(row("Ingress of $algorithm", repeated_for="algorithm"))
        .with_panel(
            coloured(
                lines(
                    "Ingress rate: $algorithm",
                    "Bytes per second into the parameter server. The layers contain each other: "
                    "payload is the encoded gradients, message adds the testbed's framing, wire "
                    "every header down to Ethernet and the acknowledgements.",
                    "Bps",
                    over_time(
                        f"sum by (run, layer) ({rate('testbed_ingress_bytes_total')})",
                        "{{layer}} {{run}}",
                    ),
                ),
                colours.LAYERS,
            )
        )
        .with_panel(
            coloured(
                lines(
                    "Ingress total: $algorithm",
                    "Bytes into the parameter server since the run began, by layer; the layers "
                    "contain each other. At the end they are ingress_after_drain of the run's "
                    "summary.json.",
                    "decbytes",
                    over_time(
                        f"sum by (run, layer) ({of('testbed_ingress_bytes_total')})",
                        "{{layer}} {{run}}",
                    ),
                ),
                colours.LAYERS,
            )
        )
        .with_row(row("What it buys"))
        .with_panel(
            curves(
                "Accuracy against ingress",
                "A point for each evaluation: the accuracy of a version, and what had entered the "
                "parameter server when that version was reached. Further up and left is better.",
                (
                    "PS ingress, $layer bytes",
                    "decbytes",
                    f"max by (run, algorithm) ({of('testbed_evaluated_ingress_bytes', of_layer)})",
                ),
                (
                    "accuracy",
                    "percentunit",
                    f"max by (run, algorithm) ({of('testbed_accuracy_ratio')})",
                ),
                size=(14, 12),
                logarithmic=True,
            )
        )
        .with_panel(
            rows(
                "Bytes to accuracy $target",
                "What had entered the parameter server when a run first reached the accuracy "
                "chosen above, by layer. A run that is not here has not reached it.",
                "decbytes",
                {
                    name: cells(
                        last(
                            "testbed_target_accuracy_ingress_bytes",
                            f'layer="{name}"',
                            'accuracy="$target"',
                        ),
                        ref_id,
                    )
                    for name, ref_id in (("wire", "A"), ("message", "B"), ("payload", "C"))
                },
                size=(10, 12),
            )
        )
        .with_row(row("Who sends"))
        .with_panel(
            bars(
                "Top talkers",
                "The ten workers that sent most, in message bytes, and their class. Only of runs "
                "started with testbed run --metrics-port PORT --metrics-workers.",
                "decbytes",
                now(TALKERS, "{{worker}} ({{device_class}}) {{algorithm}} {{run}}"),
                size=(24, 9),
            )
        )
        .build()
    )
