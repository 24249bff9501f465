"""The dashboard *Network*: the uplinks, and the part of the ingress that is not gradients."""

from dashboards import colours
from dashboards.page import Dashboard, Row
from dashboards.panels import Lines, Number
from dashboards.selection import RUN, last, of, rate

CLASS = "{{device_class}} {{algorithm}} {{run}}"
CAPACITY = f"capacity {CLASS}"


def _of_classes(expression: str) -> str:
    return f"sum by (run, algorithm, device_class) ({expression})"


UPLINKS = Row(
    "Uplinks",
    8,
    (
        Lines(
            "Uplink throughput",
            "Bytes per second that the uplinks of each device class sent, and, dashed, what they "
            "may; no dashed line where they are not shaped.",
            "Bps",
            {
                CLASS: _of_classes(rate("testbed_uplink_transmitted_bytes_total")),
                CAPACITY: _of_classes(of("testbed_uplink_capacity_bytes_per_second")),
            },
            dashed=CAPACITY,
        ),
        Lines(
            "Uplink utilisation",
            "Share of their shaped rates that the uplinks of each device class used. Nothing where "
            "the uplinks are not shaped.",
            "percentunit",
            {CLASS: _of_classes(of("testbed_uplink_utilisation_ratio"))},
            thresholds=((0.9, "orange"),),
            maximum=1,
        ),
        Lines(
            "Uplink backlog",
            "Bytes that wait in the uplinks' queues, by device class.",
            "decbytes",
            {CLASS: _of_classes(of("testbed_uplink_backlog_bytes"))},
        ),
        Lines(
            "Uplink drops",
            "Packets per second that a full uplink queue dropped, by device class.",
            "pps",
            {CLASS: _of_classes(rate("testbed_uplink_dropped_packets_total"))},
            thresholds=((1, "orange"),),
        ),
    ),
)
OVERHEAD = Row(
    "What is not gradients",
    8,
    (
        Lines(
            "Framing share",
            "Share of the message bytes that is the testbed's own framing: 1 - payload / message, "
            "since the run began.",
            "percentunit",
            {RUN: of("testbed:ingress_framing:ratio")},
            width=8,
        ),
        Lines(
            "Header share",
            "Share of the wire bytes that is headers and acknowledgements: 1 - message / wire, since "
            "the run began.",
            "percentunit",
            {RUN: of("testbed:ingress_headers:ratio")},
            width=8,
        ),
        Lines(
            "ACK share",
            "Share of the frames into the parameter server that are nothing but an acknowledgement "
            "of what it sent, since the run began.",
            "percentunit",
            {RUN: of("testbed:ingress_acknowledgements:ratio")},
            width=8,
        ),
    ),
)
AT_THE_SERVER = Row(
    "At the parameter server's link",
    8,
    (
        Lines(
            "Frames in",
            "Frames per second into the parameter server, at an MTU of 1,500.",
            "pps",
            {RUN: f"sum by (run, algorithm) ({rate('testbed_ingress_packets_total')})"},
            width=8,
        ),
        Lines(
            "Egress",
            "Bytes per second out of the parameter server: the parameters that workers pull. The "
            "layers contain each other.",
            "Bps",
            {
                f"{{{{layer}}}} {RUN}": "sum by (run, algorithm, layer) "
                f"({rate('testbed_egress_bytes_total')})"
            },
            width=8,
            colours=colours.LAYERS,
        ),
        Number(
            "Packets that the capture missed",
            "If it is not zero, the capture's counts are too low and say so at the end of the run. "
            "Nothing where the capture is off.",
            "none",
            {RUN: last("testbed_capture_dropped_packets_total")},
            width=8,
            thresholds=((1, "red"),),
        ),
    ),
)
DASHBOARD = Dashboard(
    "network",
    "Network",
    "The emulated uplinks, and the overhead of the protocols.",
    (UPLINKS, OVERHEAD, AT_THE_SERVER),
)
