"""Charts of one measured quantity against another, with a curve for every run and algorithm.

Prometheus has only values against time. Both coordinates are therefore queried as tables, joined row by
row on what they share (the time of the step, the run, the algorithm), and split into a table per run
and algorithm, each of which is a curve. Both gauges of a pair are in the same scrape, so that a point
never mixes two moments.
"""

from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, xychart
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.xychart import SeriesMapping, XYShowMode

from dashboards.panels import described, properties
from dashboards.selection import points

X = "Value #X"
Y = "Value #Y"
_TABLE_OF_EACH_RUN: dict[str, object] = {
    "merge": {},
    "sortBy": {"fields": {}, "sort": [{"field": "Time"}]},
    "partitionByValues": {
        "fields": ["algorithm", "run"],
        "keepFields": False,
        "naming": {"asLabels": True},
    },
}


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: its label, Grafana's name of its unit, and its expression by run and algorithm."""

    label: str
    unit: str
    expression: str


@dataclass(frozen=True, slots=True)
class Against:
    """A chart of ``y`` against ``x``.

    Attributes:
        logarithmic: True for a logarithmic x axis; the queries then leave out points at zero.
    """

    title: str
    description: str
    x: Axis
    y: Axis
    width: int = 12
    logarithmic: bool = False

    def builder(self, height: int) -> xychart.Panel:
        """Make Grafana's panel."""
        across, up = self.x.expression, self.y.expression
        if self.logarithmic:
            across = f"{across} > 0"
            up = f"{up} and on (run, algorithm) ({across})"
        panel = described(
            xychart.Panel(),
            title=self.title,
            description=self.description,
            unit=self.y.unit,
            queries=[points(across, "X"), points(up, "Y")],
            size=(self.width, height),
        )
        return (
            panel.color_scheme(build.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC))
            .mapping(SeriesMapping.AUTO)
            .series(
                [
                    xychart.XYSeriesConfig()
                    .x(xychart.XychartXYSeriesConfigX().matcher(_matcher(X)))
                    .y(xychart.XychartXYSeriesConfigY().matcher(_matcher(Y)))
                ]
            )
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
                    model.DataTransformerConfig(id_val=name, options=options)
                    for name, options in _TABLE_OF_EACH_RUN.items()
                ]
            )
            .override_by_name(X, self._x_axis())
            .override_by_name(Y, self._y_axis())
        )

    def _x_axis(self) -> list[model.DynamicConfigValue]:
        scale = {"type": "log", "log": 10} if self.logarithmic else {"type": "linear"}
        return properties(
            {
                "unit": self.x.unit,
                "custom.axisLabel": self.x.label,
                "custom.scaleDistribution": scale,
                "displayName": self.x.label,
            }
        )

    def _y_axis(self) -> list[model.DynamicConfigValue]:
        name = "${__field.labels.algorithm} ${__field.labels.run}"
        return properties({"custom.axisLabel": self.y.label, "displayName": name})


def _matcher(name: str) -> xychart.MatcherConfig:
    return xychart.MatcherConfig().id("byName").options(name)
