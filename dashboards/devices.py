"""The dashboard *Devices*: states, throughput and staleness of devices, and their cost to the host."""

from grafana_foundation_sdk.models import dashboard as model

from dashboards import colours
from dashboards.page import numbered, page, row
from dashboards.panels import coloured, density, lines, number, stacked
from dashboards.selection import RUNS, buckets, now, of, over_time, rate
from dashboards.selection import row as cells
from dashboards.tables import rows

BUCKETS = f"sum by (le) ({rate('testbed_update_staleness_bucket')})"
BY_LE = f"sum by (run, algorithm, le) ({rate('testbed_update_staleness_bucket')})"
LOST = (
    "max by (run, algorithm, device_class) "
    f"(last_over_time({of('testbed_devices_lost_total')}[$__range]))"
)
OUT = 'state=~"dead|frozen"'
ALIVE = (
    f"sum by (run, algorithm) ({of('testbed_class_devices')}) "
    f"- sum by (run, algorithm) ({of('testbed_devices', OUT)})"
)
STRUCK = (
    f"max by (run, algorithm, kind) (last_over_time({of('testbed_faults_total')}[$__range])) > 0"
)


def _state(name: str) -> str:
    matcher = f'state="{name}"'
    return f"sum by (run, algorithm) ({of('testbed_devices', matcher)})"


def dashboard() -> model.Dashboard:
    """Build the dashboard."""
    return numbered(
        page(
            "devices",
            "Devices",
            "States, throughput, staleness and cost of the emulated machines; red marks are crashes, "
            "purple ones faults of the experiment.",
        )
        .with_row(row("Devices of $algorithm", repeated_for="algorithm"))
        .with_panel(
            coloured(
                stacked(
                    lines(
                        "Devices by state: $algorithm",
                        "How many devices are in each state, on top of each other. A red mark is "
                        "a device that was lost.",
                        "none",
                        over_time(
                            f"sum by (run, state) ({of('testbed_devices')})", "{{state}} {{run}}"
                        ),
                        size=(12, 9),
                    )
                ),
                colours.STATES,
            )
        )
        .with_panel(
            lines(
                "Updates per second by device class: $algorithm",
                "Updates of each device class that the server applied; one class, all, where the "
                "experiment names none.",
                "suffix: /s",
                over_time(
                    f"sum by (run, device_class) ({rate('testbed_class_updates_total')})",
                    "{{device_class}} {{run}}",
                ),
                size=(12, 9),
            )
        )
        .with_row(row("Faults"))
        .with_panel(
            coloured(
                lines(
                    "Workers alive",
                    "Workers that are neither frozen nor dead. Purple marks are faults of the "
                    "experiment, red ones are devices that were lost.",
                    "none",
                    over_time(ALIVE, "alive {{algorithm}} {{run}}"),
                    size=(8, 8),
                ),
                colours.WORKERS,
            )
        )
        .with_panel(
            coloured(
                lines(
                    "Workers out of action",
                    "Frozen, dead, with their link down or cut off from the server, and those that "
                    "the server has heard nothing of for too long. One worker may be several of "
                    "these.",
                    "none",
                    [
                        over_time(_state("frozen"), "frozen {{algorithm}} {{run}}", "A"),
                        over_time(_state("dead"), "dead {{algorithm}} {{run}}", "B"),
                        over_time(
                            f"sum by (run, algorithm) ({of('testbed_devices_cut')})",
                            "cut off {{algorithm}} {{run}}",
                            "C",
                        ),
                        over_time(
                            f"sum by (run, algorithm) ({of('testbed_workers_suspected')})",
                            "suspected {{algorithm}} {{run}}",
                            "D",
                        ),
                    ],
                    size=(8, 8),
                ),
                colours.WORKERS,
            )
        )
        .with_panel(
            number(
                "Devices struck",
                "How many devices each kind of fault of the experiment has struck; one that is "
                "struck twice counts twice. Nothing where there were no faults.",
                "none",
                now(STRUCK, "{{kind}} {{algorithm}} {{run}}"),
                size=(8, 8),
            )
        )
        .with_row(row("Losses"))
        .with_panel(
            number(
                "Devices lost",
                "Devices that crashed, on purpose or not, by class.",
                "none",
                now(LOST, "{{device_class}} {{algorithm}} {{run}}"),
                size=(8, 7),
                thresholds=[(1, "orange")],
            )
        )
        .with_panel(
            lines(
                "Updates dropped",
                "Pushes per second that the server did not apply: in synchronous SGD, those that "
                "came after enough others had.",
                "suffix: /s",
                over_time(
                    f"sum by (run, algorithm) ({rate('testbed_updates_dropped_total')})",
                    "{{algorithm}} {{run}}",
                ),
                size=(8, 7),
            )
        )
        .with_panel(
            rows(
                "Alerts",
                "Which of the testbed's alerts fire (dashboards/prometheus/alerts.yml): devices "
                "lost, packets that the capture missed, an evaluator that is behind, no progress, "
                "full queues. Empty is good.",
                "none",
                {"firing": cells(f'ALERTS{{alertstate="firing", {RUNS}}}', "A")},
                size=(8, 7),
                hidden=("__name__", "alertstate", "instance", "job"),
            )
        )
        .with_row(row("Staleness"))
        .with_panel(
            density(
                "Staleness",
                "How many updates the server applied between a worker's pull and its push, over "
                "time; the colour is updates per second.",
                "none",
                buckets(BUCKETS),
            )
        )
        .with_panel(
            lines(
                "Staleness, median and 95th percentile",
                "Of the updates of the last seconds, interpolated within the histogram's buckets.",
                "none",
                [
                    over_time(
                        f"histogram_quantile({q}, {BY_LE})",
                        f"{name} {{{{algorithm}}}} {{{{run}}}}",
                        ref,
                    )
                    for q, name, ref in ((0.5, "median", "A"), (0.95, "95 %", "B"))
                ],
                size=(12, 9),
            )
        )
        .with_row(row("Server and evaluator"))
        .with_panel(
            lines(
                "Waiting in the server",
                "How long a push waited in the server's process after the kernel had received it; "
                "mean of ten seconds. If it grows, the server is the bottleneck.",
                "s",
                over_time(of("testbed:server_queue_seconds:mean10s"), "{{algorithm}} {{run}}"),
                size=(8, 8),
                thresholds=[(1, "orange")],
            )
        )
        .with_panel(
            lines(
                "Applying an update",
                "How long the server took for one update; mean of ten seconds.",
                "s",
                over_time(of("testbed:server_apply_seconds:mean10s"), "{{algorithm}} {{run}}"),
                size=(8, 8),
            )
        )
        .with_panel(
            lines(
                "Evaluations due",
                "How many evaluations the evaluator is behind.",
                "none",
                over_time(
                    f"max by (run, algorithm) ({of('testbed_evaluations_due')})",
                    "{{algorithm}} {{run}}",
                ),
                size=(8, 8),
                thresholds=[(4, "orange")],
            )
        )
        .with_row(row("What it costs the host"))
        .with_panel(
            coloured(
                lines(
                    "Memory",
                    "Private memory of each role, all its processes together.",
                    "decbytes",
                    over_time(
                        f"sum by (run, algorithm, role) ({of('testbed_memory_bytes')})",
                        "{{role}} {{algorithm}} {{run}}",
                    ),
                ),
                colours.ROLES,
            )
        )
        .with_panel(
            coloured(
                lines(
                    "Processors",
                    "Processor time per second of each role; 100 % is one processor.",
                    "percentunit",
                    over_time(
                        f"sum by (run, algorithm, role) ({rate('testbed_cpu_seconds_total')})",
                        "{{role}} {{algorithm}} {{run}}",
                    ),
                ),
                colours.ROLES,
            )
        )
        .build()
    )
