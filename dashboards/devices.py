"""The dashboard *Devices*: states, throughput and staleness of devices, and their cost to the host."""

from dashboards import colours
from dashboards.page import Dashboard, Row
from dashboards.panels import Density, Lines, Number
from dashboards.selection import RUN, RUNS, of, rate
from dashboards.tables import Table

OUT = 'state=~"dead|frozen"'
STALENESS = rate("testbed_update_staleness_bucket")


def _sum(expression: str, *labels: str) -> str:
    """Return the sum of an expression by run, algorithm and more labels."""
    return f"sum by ({', '.join(('run', 'algorithm', *labels))}) ({expression})"


def _greatest(metric: str, label: str) -> str:
    """Return the greatest value inside the time range by run, algorithm and a label."""
    return f"max by (run, algorithm, {label}) (last_over_time({of(metric)}[$__range]))"


def _quantile(share: float) -> str:
    return f"histogram_quantile({share}, {_sum(STALENESS, 'le')})"


def _state(name: str) -> str:
    matcher = f'state="{name}"'
    return _sum(of("testbed_devices", matcher))


STATES = Row(
    "Devices of $algorithm",
    9,
    (
        Lines(
            "Devices by state: $algorithm",
            "How many devices are in each state, on top of each other. A red mark is a device that "
            "was lost.",
            "none",
            {"{{state}} {{run}}": f"sum by (run, state) ({of('testbed_devices')})"},
            colours=colours.STATES,
            stacked=True,
        ),
        Lines(
            "Pushes per second by device class: $algorithm",
            "Pushes of each device class that the server applied; a synchronous server makes an update "
            "of several. There is one class, all, where the experiment names none.",
            "suffix: /s",
            {
                "{{device_class}} {{run}}": "sum by (run, device_class) "
                f"({rate('testbed_class_updates_total')})"
            },
        ),
    ),
    repeated_for="algorithm",
)
FAULTS = Row(
    "Faults",
    8,
    (
        Lines(
            "Workers alive",
            "Workers that are neither frozen nor dead. Purple marks are faults of the experiment, red "
            "ones are devices that were lost.",
            "none",
            {
                f"alive {RUN}": f"{_sum(of('testbed_class_devices'))} - "
                f"{_sum(of('testbed_devices', OUT))}"
            },
            width=8,
            colours=colours.WORKERS,
        ),
        Lines(
            "Workers out of action",
            "Frozen, dead, with their link down or cut off from the server, and those that the "
            "server has heard nothing of for too long. One worker may be several of these.",
            "none",
            {
                f"frozen {RUN}": _state("frozen"),
                f"dead {RUN}": _state("dead"),
                f"cut off {RUN}": _sum(of("testbed_devices_cut")),
                f"suspected {RUN}": _sum(of("testbed_workers_suspected")),
            },
            width=8,
            colours=colours.WORKERS,
        ),
        Number(
            "Devices struck",
            "How many devices each kind of fault of the experiment has struck; one that is struck "
            "twice counts twice. Nothing where there were no faults.",
            "none",
            {f"{{{{kind}}}} {RUN}": f"{_greatest('testbed_faults_total', 'kind')} > 0"},
            width=8,
        ),
    ),
)
LOSSES = Row(
    "Losses",
    7,
    (
        Number(
            "Devices lost",
            "Devices that crashed, on purpose or not, by class.",
            "none",
            {
                f"{{{{device_class}}}} {RUN}": _greatest(
                    "testbed_devices_lost_total", "device_class"
                )
            },
            width=8,
            thresholds=((1, "orange"),),
        ),
        Lines(
            "Pushes dropped",
            "Pushes per second that the server did not apply: in synchronous SGD, those that came "
            "after enough others had.",
            "suffix: /s",
            {RUN: _sum(rate("testbed_updates_dropped_total"))},
            width=8,
        ),
        Table(
            "Alerts",
            "Which of the testbed's alerts fire (dashboards/prometheus/alerts.yml): devices lost, "
            "packets that the capture missed, an evaluator that is late, no progress, full queues. "
            "Empty is good.",
            "none",
            {"firing": f'ALERTS{{alertstate="firing", {RUNS}}}'},
            width=8,
            hidden=("__name__", "alertstate", "instance", "job"),
        ),
    ),
)
STALENESSES = Row(
    "Staleness",
    9,
    (
        Density(
            "Staleness",
            "How many updates the server applied between a worker's pull and its push, over time; "
            "the colour is updates per second.",
            "none",
            {"{{le}}": f"sum by (le) ({STALENESS})"},
        ),
        Lines(
            "Staleness, median and 95th percentile",
            "Of the updates of the last seconds, interpolated within the histogram's buckets.",
            "none",
            {f"median {RUN}": _quantile(0.5), f"95 % {RUN}": _quantile(0.95)},
        ),
    ),
)
K, NOT_K = 'diagnostic="k"', 'diagnostic!="k"'
DIAGNOSTICS = Row(
    "Diagnostics",
    8,
    (
        Lines(
            "Gradients waited for",
            "k of synchronous algorithms at the last update: the gradients in its mean, which DBW and "
            "AdaSync choose anew each time. The others' workers are backups. Nothing for algorithms "
            "that wait for none.",
            "none",
            {f"k {RUN}": f"max by (run, algorithm) ({of('testbed_diagnostic', K)})"},
            width=10,
        ),
        Lines(
            "Diagnostics",
            "The algorithm's other numbers at its last update, such as the late gradients that "
            "sync-sgd dropped since the update before. Nothing for an algorithm that reports none.",
            "none",
            {
                f"{{{{diagnostic}}}} {RUN}": "max by (run, algorithm, diagnostic) "
                f"({of('testbed_diagnostic', NOT_K)})"
            },
            width=14,
        ),
    ),
)
SERVER = Row(
    "Server and evaluator",
    8,
    (
        Lines(
            "Waiting in the server",
            "How long a push waited in the server's process after the kernel had received it; mean of "
            "ten seconds. If it grows, the server is the bottleneck.",
            "s",
            {RUN: of("testbed:server_queue_seconds:mean10s")},
            width=8,
            thresholds=((1, "orange"),),
        ),
        Lines(
            "Applying an update",
            "How long the server took for one update; mean of ten seconds.",
            "s",
            {RUN: of("testbed:server_apply_seconds:mean10s")},
            width=8,
        ),
        Lines(
            "Evaluations due",
            "Evaluations that are due and have no result yet.",
            "none",
            {RUN: f"max by (run, algorithm) ({of('testbed_evaluations_due')})"},
            width=8,
            thresholds=((4, "orange"),),
        ),
    ),
)
COST = Row(
    "What it costs the host",
    8,
    (
        Lines(
            "Memory",
            "Private memory of each role, all its processes together.",
            "decbytes",
            {f"{{{{role}}}} {RUN}": _sum(of("testbed_memory_bytes"), "role")},
            colours=colours.ROLES,
        ),
        Lines(
            "Processors",
            "Processor time per second of each role; 100 % is one processor.",
            "percentunit",
            {f"{{{{role}}}} {RUN}": _sum(rate("testbed_cpu_seconds_total"), "role")},
            colours=colours.ROLES,
        ),
    ),
)
DASHBOARD = Dashboard(
    "devices",
    "Devices",
    "States, throughput, staleness and cost of the emulated machines; red marks are crashes, purple "
    "ones faults of the experiment.",
    (STATES, FAULTS, LOSSES, STALENESSES, DIAGNOSTICS, SERVER, COST),
)
