"""The dashboard *Ingress*: the bytes that enter the parameter server, and the accuracy they buy."""

from dashboards import colours
from dashboards.measures import MEASURES
from dashboards.page import Dashboard, Row
from dashboards.panels import Bars, Lines, Number, Phases
from dashboards.selection import LAYERS, RUN, RUNS, last, layer, measure, of, rate, target
from dashboards.tables import Table
from dashboards.xy import Against, Axis

PHASES = (
    "{} * ({} == 1)".format(number, of("testbed_run_phase", f'phase="{name}"'))
    for number, name in enumerate(colours.PHASES, 1)
)
PHASE = "max by (run, algorithm) ({})".format(" or ".join(PHASES))
PROGRESS = f"{last('testbed_updates_total')} / {last('testbed_updates_target')}"
SPEED = f"{last('testbed_updates_total')} / ({last('testbed_training_seconds')} > 0)"
EVALUATED = of("testbed_evaluated_ingress_bytes", 'layer="$layer"')
TALKERS = (
    "topk(10, max by (run, algorithm, worker) "
    f"(last_over_time(testbed_worker_ingress_bytes_total{{{RUNS}}}[$__range]))) "
    "* on (run, algorithm, worker) group_left (device_class) "
    "max by (run, algorithm, worker, device_class) "
    f"(last_over_time(testbed_worker_info{{{RUNS}}}[$__range]))"
)


def _to_accuracy(layer: str) -> str:
    """Return the expression for the bytes of a layer at which a run reached the chosen accuracy."""
    matchers = f'layer="{layer}"', 'accuracy="$target"'
    return last("testbed_target_accuracy_ingress_bytes", *matchers)


NOW = Row(
    "Now",
    5,
    (
        Number(
            "Wire ingress",
            "Everything that entered the parameter server so far, with every header at an MTU of "
            "1,500 and the workers' acknowledgements; among peers, all of them.",
            "decbytes",
            {RUN: last("testbed_ingress_bytes_total", 'layer="wire"')},
            width=6,
        ),
        Number(
            "Accuracy",
            "Share of the test set that the last evaluation got right.",
            "percentunit",
            {RUN: last("testbed_accuracy_ratio")},
            width=6,
            thresholds=((0, "red"), (0.5, "orange"), (0.9, "green")),
        ),
        Number(
            "Progress",
            "Updates applied, of those that the run lasts.",
            "percentunit",
            {RUN: PROGRESS},
            width=6,
        ),
        Number(
            "Updates per second",
            "Since training began, by the host's clock: how fast this host is.",
            "suffix: /s",
            {RUN: SPEED},
            width=6,
        ),
        Phases("Phase", "What each run was doing.", "none", {RUN: PHASE}, width=24),
    ),
)
BY_LAYER = Row(
    "Ingress of $algorithm",
    8,
    (
        Lines(
            "Ingress rate: $algorithm",
            "Bytes per second into the parameter server. The layers contain each other: payload is "
            "the encoded gradients, message adds the testbed's framing, wire every header down to "
            "Ethernet and the acknowledgements.",
            "Bps",
            {"{{layer}} {{run}}": f"sum by (run, layer) ({rate('testbed_ingress_bytes_total')})"},
            colours=colours.LAYERS,
        ),
        Lines(
            "Ingress total: $algorithm",
            "Bytes into the parameter server since the run began, by layer; the layers contain each "
            "other. At the end they are ingress_after_drain of the run's summary.json.",
            "decbytes",
            {"{{layer}} {{run}}": f"sum by (run, layer) ({of('testbed_ingress_bytes_total')})"},
            colours=colours.LAYERS,
        ),
    ),
    repeated_for="algorithm",
)
BUYS = Row(
    "What it buys",
    12,
    (
        Against(
            "Accuracy against ingress",
            "A point for each evaluation: the accuracy of a version, and what had entered the "
            "parameter server when that version was reached. Further up and left is better.",
            Axis("PS ingress, $layer bytes", "decbytes", f"max by (run, algorithm) ({EVALUATED})"),
            Axis(
                "accuracy",
                "percentunit",
                f"max by (run, algorithm) ({of('testbed_accuracy_ratio')})",
            ),
            width=14,
            logarithmic=True,
        ),
        Table(
            "Bytes to accuracy $target",
            "What had entered the parameter server when a run first reached the accuracy chosen "
            "above, by layer. A run that is not here has not reached it.",
            "decbytes",
            {name: _to_accuracy(name) for name in LAYERS},
            width=10,
        ),
    ),
)
SENDERS = Row(
    "Who sends",
    9,
    (
        Bars(
            "Top talkers",
            "The ten workers that sent most, in message bytes, and their class. Only of runs started "
            "with testbed run --metrics-port PORT --metrics-workers.",
            "decbytes",
            {"{{worker}} ({{device_class}}) {{algorithm}} {{run}}": TALKERS},
            width=24,
        ),
    ),
)
DASHBOARD = Dashboard(
    "ingress",
    "Ingress",
    "Bytes that enter the parameter server, by layer, and the accuracy that they buy.",
    (NOW, BY_LAYER, BUYS, MEASURES, SENDERS),
    (layer, target, measure),
)
