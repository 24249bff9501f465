"""The dashboard *Network*: the uplinks, and the part of the ingress that is not gradients."""

from grafana_foundation_sdk.models import dashboard as model

from dashboards import colours
from dashboards.page import numbered, page, row
from dashboards.panels import coloured, lines, number
from dashboards.selection import last, now, of, over_time, rate

CLASSES = "sum by (run, algorithm, device_class) ({})"
CLASS = "{{device_class}} {{algorithm}} {{run}}"
RUN = "{{algorithm}} {{run}}"


def dashboard() -> model.Dashboard:
    """Build the dashboard."""
    return numbered(
        page("network", "Network", "The emulated uplinks, and the overhead of the protocols.")
        .with_row(row("Uplinks"))
        .with_panel(
            lines(
                "Uplink throughput",
                "Bytes per second that the uplinks of each device class sent, and, dashed, what "
                "they may; no dashed line where they are not shaped.",
                "Bps",
                [
                    over_time(
                        CLASSES.format(rate("testbed_uplink_transmitted_bytes_total")), CLASS
                    ),
                    over_time(
                        CLASSES.format(of("testbed_uplink_capacity_bytes_per_second")),
                        f"capacity {CLASS}",
                        "B",
                    ),
                ],
            ).override_by_query(
                "B",
                [
                    model.DynamicConfigValue(
                        id_val="custom.lineStyle", value={"fill": "dash", "dash": [10, 10]}
                    ),
                    model.DynamicConfigValue(id_val="custom.fillOpacity", value=0),
                ],
            )
        )
        .with_panel(
            lines(
                "Uplink utilisation",
                "Share of their shaped rates that the uplinks of each device class used. Nothing "
                "where the uplinks are not shaped.",
                "percentunit",
                over_time(CLASSES.format(of("testbed_uplink_utilisation_ratio")), CLASS),
                thresholds=[(0.9, "orange")],
            ).max(1)
        )
        .with_panel(
            lines(
                "Uplink backlog",
                "Bytes that wait in the uplinks' queues, by device class.",
                "decbytes",
                over_time(CLASSES.format(of("testbed_uplink_backlog_bytes")), CLASS),
            )
        )
        .with_panel(
            lines(
                "Uplink drops",
                "Packets per second that a full uplink queue dropped, by device class.",
                "pps",
                over_time(CLASSES.format(rate("testbed_uplink_dropped_packets_total")), CLASS),
                thresholds=[(1, "orange")],
            )
        )
        .with_row(row("What is not gradients"))
        .with_panel(
            lines(
                "Framing share",
                "Share of the message bytes that is the testbed's own framing: 1 - payload / "
                "message, since the run began.",
                "percentunit",
                over_time(of("testbed:ingress_framing:ratio"), RUN),
                size=(8, 8),
            )
        )
        .with_panel(
            lines(
                "Header share",
                "Share of the wire bytes that is headers and acknowledgements: 1 - message / "
                "wire, since the run began.",
                "percentunit",
                over_time(of("testbed:ingress_headers:ratio"), RUN),
                size=(8, 8),
            )
        )
        .with_panel(
            lines(
                "ACK share",
                "Share of the frames into the parameter server that are nothing but an "
                "acknowledgement of what it sent, since the run began.",
                "percentunit",
                over_time(of("testbed:ingress_acknowledgements:ratio"), RUN),
                size=(8, 8),
            )
        )
        .with_row(row("At the parameter server's link"))
        .with_panel(
            lines(
                "Frames in",
                "Frames per second into the parameter server, at an MTU of 1,500.",
                "pps",
                over_time(
                    f"sum by (run, algorithm) ({rate('testbed_ingress_packets_total')})", RUN
                ),
                size=(8, 8),
            )
        )
        .with_panel(
            coloured(
                lines(
                    "Egress",
                    "Bytes per second out of the parameter server: the parameters that workers "
                    "pull. The layers contain each other.",
                    "Bps",
                    over_time(
                        f"sum by (run, algorithm, layer) ({rate('testbed_egress_bytes_total')})",
                        "{{layer}} {{algorithm}} {{run}}",
                    ),
                    size=(8, 8),
                ),
                colours.LAYERS,
            )
        )
        .with_panel(
            number(
                "Packets that the capture missed",
                "If it is not zero, the capture's counts are too low and say so at the end of the "
                "run. Nothing where the capture is off.",
                "none",
                now(last("testbed_capture_dropped_packets_total"), RUN),
                size=(8, 8),
                thresholds=[(1, "red")],
            )
        )
        .build()
    )
