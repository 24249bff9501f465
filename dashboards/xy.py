"""Charts of one measured quantity against another, with a curve for every run and algorithm.

Prometheus has only values against time. Both coordinates are therefore queried as tables, joined row by
row on what they share (the time of the step, the run, the algorithm), and split into a table per run
and algorithm, each of which is a curve. Both gauges of a pair are in the same scrape, so that a point
never mixes two moments.
"""

from grafana_foundation_sdk.builders import common, xychart
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.xychart import SeriesMapping, XYShowMode

from dashboards.panels import described
from dashboards.selection import points

X = "Value #X"
Y = "Value #Y"


def curves(
    title: str,
    description: str,
    x: tuple[str, str, str],
    y: tuple[str, str, str],
    *,
    size: tuple[int, int] = (12, 11),
    logarithmic: bool = False,
) -> xychart.Panel:
    """Make a chart of ``y`` against ``x``, each a label, a unit and an expression by run and algorithm.

    Args:
        logarithmic: True for a logarithmic x axis; the query then leaves out points at zero.
    """
    across, up = x[2], y[2]
    if logarithmic:
        across = f"{x[2]} > 0"
        up = f"{y[2]} and on (run, algorithm) ({across})"
    expressions = [points(across, "X"), points(up, "Y")]
    panel = described(xychart.Panel(), title, description, y[1], expressions, size=size)
    axis = {"type": "log", "log": 10} if logarithmic else {"type": "linear"}
    return (
        panel.color_scheme(build.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC))
        .mapping(SeriesMapping.AUTO)
        .series([xychart.XYSeriesConfig().x(_named(X)).y(_also_named(Y))])
        .show(XYShowMode.POINTS_AND_LINES)
        .point_size(xychart.XychartFieldConfigPointSize().fixed(5))
        .line_width(2)
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(shapes.LegendDisplayMode.LIST)
            .placement(shapes.LegendPlacement.BOTTOM)
        )
        .tooltip(common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.SINGLE))
        .transformations(
            [
                model.DataTransformerConfig(id_val="merge", options={}),
                model.DataTransformerConfig(
                    id_val="sortBy", options={"fields": {}, "sort": [{"field": "Time"}]}
                ),
                model.DataTransformerConfig(
                    id_val="partitionByValues",
                    options={
                        "fields": ["algorithm", "run"],
                        "keepFields": False,
                        "naming": {"asLabels": True},
                    },
                ),
            ]
        )
        .override_by_name(
            X,
            [
                _property("unit", x[1]),
                _property("custom.axisLabel", x[0]),
                _property("custom.scaleDistribution", axis),
                _property("displayName", x[0]),
            ],
        )
        .override_by_name(
            Y,
            [
                _property("custom.axisLabel", y[0]),
                _property("displayName", "${__field.labels.algorithm} ${__field.labels.run}"),
            ],
        )
    )


def _property(name: str, value: object) -> model.DynamicConfigValue:
    return model.DynamicConfigValue(id_val=name, value=value)


def _matcher(name: str) -> xychart.MatcherConfig:
    return xychart.MatcherConfig().id("byName").options(name)


def _named(name: str) -> xychart.XychartXYSeriesConfigX:
    return xychart.XychartXYSeriesConfigX().matcher(_matcher(name))


def _also_named(name: str) -> xychart.XychartXYSeriesConfigY:
    return xychart.XychartXYSeriesConfigY().matcher(_matcher(name))
