"""The kinds of panels of the dashboards, each with the parts that every panel must have.

These parts are a title, a sentence that says what is drawn and how to read it, a unit, thresholds (one
colour where there is nothing to warn of) and the data source that the user chose. A column of the page
is a twenty-fourth of its width; a row is 30 pixels high.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, Self, TypeVar

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    timeseries,
)
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog import builder as cog
from grafana_foundation_sdk.cog import variants
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode

from dashboards import colours
from dashboards.selection import DATASOURCE

# The release of compose/observability.yml, whose panels these options are written for.
GRAFANA = "11.6.16"

Threshold = tuple[float, str]
Queries = prometheus.Dataquery | Sequence[prometheus.Dataquery]


class _Panel(Protocol):
    def title(self, title: str) -> Self: ...
    def description(self, description: str) -> Self: ...
    def datasource(self, datasource: model.DataSourceRef) -> Self: ...
    def unit(self, unit: str) -> Self: ...
    def thresholds(self, thresholds: cog.Builder[model.ThresholdsConfig]) -> Self: ...
    def targets(self, targets: list[cog.Builder[variants.Dataquery]]) -> Self: ...
    def span(self, w: int) -> Self: ...
    def height(self, h: int) -> Self: ...


class _Coloured(Protocol):
    def override_by_regexp(
        self, regexp: str, properties: list[model.DynamicConfigValue]
    ) -> Self: ...


P = TypeVar("P", bound=_Panel)
C = TypeVar("C", bound=_Coloured)


def described(
    panel: P,
    title: str,
    description: str,
    unit: str,
    queries: Queries,
    *,
    size: tuple[int, int],
    thresholds: Sequence[Threshold] = (),
) -> P:
    """Give a panel the parts that every panel has; ``size`` is in columns and rows."""
    steps = [model.Threshold(value=None, color="green")]
    steps += [model.Threshold(value=value, color=colour) for value, colour in thresholds]
    limits = build.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)
    wanted = [queries] if isinstance(queries, prometheus.Dataquery) else list(queries)
    return (
        panel.title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .thresholds(limits)
        .targets(list[cog.Builder[variants.Dataquery]](wanted))
        .span(size[0])
        .height(size[1])
    )


def coloured(panel: C, names: Mapping[str, str]) -> C:
    """Give each series whose name starts with one of ``names`` the colour of that name."""
    for name, colour in names.items():
        panel = panel.override_by_regexp(colours.starting_with(name), colours.fixed(colour))
    return panel


def lines(
    title: str,
    description: str,
    unit: str,
    queries: Queries,
    *,
    size: tuple[int, int] = (12, 8),
    thresholds: Sequence[Threshold] = (),
) -> timeseries.Panel:
    """Make a panel of curves over time, from zero."""
    limits = common.GraphThresholdsStyleConfig().mode(
        shapes.GraphThresholdsStyleMode.DASHED
        if thresholds
        else shapes.GraphThresholdsStyleMode.OFF
    )
    panel = described(
        timeseries.Panel(), title, description, unit, queries, size=size, thresholds=thresholds
    )
    return (
        panel.min(0)
        .color_scheme(by_name())
        .line_width(2)
        .fill_opacity(8)
        .show_points(shapes.VisibilityMode.NEVER)
        .thresholds_style(limits)
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(shapes.LegendDisplayMode.TABLE)
            .placement(shapes.LegendPlacement.BOTTOM)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(shapes.TooltipDisplayMode.MULTI)
            .sort(shapes.SortOrder.DESCENDING)
        )
    )


def stacked(panel: timeseries.Panel) -> timeseries.Panel:
    """Stack the curves of a panel, so that their sum can be read."""
    return (
        panel.stacking(common.StackingConfig().mode(shapes.StackingMode.NORMAL).group("A"))
        .fill_opacity(60)
        .line_width(1)
    )


def number(
    title: str,
    description: str,
    unit: str,
    query: prometheus.Dataquery,
    *,
    size: tuple[int, int] = (6, 5),
    thresholds: Sequence[Threshold] = (),
) -> stat.Panel:
    """Make a panel with a large number for every series."""
    panel = described(
        stat.Panel(), title, description, unit, query, size=size, thresholds=thresholds
    )
    return (
        panel.color_scheme(by_threshold())
        .color_mode(shapes.BigValueColorMode.VALUE)
        .graph_mode(shapes.BigValueGraphMode.NONE)
        .text_mode(shapes.BigValueTextMode.VALUE_AND_NAME)
        .reduce_options(_one_value())
        .no_value("—")
    )


def bars(
    title: str,
    description: str,
    unit: str,
    query: prometheus.Dataquery,
    *,
    size: tuple[int, int] = (12, 8),
) -> bargauge.Panel:
    """Make a panel with a horizontal bar for every series."""
    panel = described(bargauge.Panel(), title, description, unit, query, size=size)
    return (
        panel.min(0)
        .color_scheme(by_name())
        .orientation(shapes.VizOrientation.HORIZONTAL)
        .display_mode(shapes.BarGaugeDisplayMode.BASIC)
        .value_mode(shapes.BarGaugeValueMode.TEXT)
        .reduce_options(_one_value())
        .no_value("—")
    )


def phases(
    title: str, description: str, query: prometheus.Dataquery, *, size: tuple[int, int]
) -> statetimeline.Panel:
    """Make a panel of the phases of each run; the query gives their numbers in ``colours.PHASES``."""
    names = {
        str(number): model.ValueMappingResult(text=name, color=colour, index=number)
        for number, (name, colour) in enumerate(colours.PHASES.items(), 1)
    }
    panel = described(statetimeline.Panel(), title, description, "none", query, size=size)
    return (
        panel.color_scheme(by_threshold())
        .mappings([model.ValueMap(options=names)])
        .fill_opacity(80)
        .show_value(shapes.VisibilityMode.AUTO)
        .merge_values(True)
        .legend(common.VizLegendOptions().show_legend(False))
    )


def density(
    title: str,
    description: str,
    unit: str,
    query: prometheus.Dataquery,
    *,
    size: tuple[int, int] = (12, 9),
) -> heatmap.Panel:
    """Make a heat map of a histogram over time; ``unit`` is that of the buckets."""
    panel = described(heatmap.Panel(), title, description, unit, query, size=size)
    return (
        panel.calculate(False)
        # "Many" is dark on a light page and light on a dark one: Grafana reverses schemes itself.
        .color(
            heatmap.HeatmapColorOptions()
            .mode(HeatmapColorMode.SCHEME)
            .scheme("Oranges")
            .exponent(0.5)
            .steps(64)
            .reverse(False)
            .fill("dark-orange")
        )
        .y_axis(heatmap.YAxisConfig().unit(unit).axis_placement(shapes.AxisPlacement.LEFT))
        .exemplars_color("orange")
        .cell_gap(1)
        .show_legend()
        .show_y_histogram()
    )


def by_name() -> build.FieldColor:
    """Return the scheme that gives each name a colour of the palette."""
    return build.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC_BY_NAME)


def by_threshold() -> build.FieldColor:
    """Return the scheme that shows the colour of the threshold that a value has passed."""
    return build.FieldColor().mode(model.FieldColorModeId.THRESHOLDS)


def _one_value() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields("")
