"""The kinds of panels of the dashboards, each with the parts that every panel must have.

These parts are a title, a sentence that says what is drawn and how to read it, a unit, thresholds (one
colour where there is nothing to warn of) and the data source that the user chose. A panel is a record;
its ``builder`` turns it into Grafana's. Widths are in twenty-fourths of the page, heights in units of
30 pixels.
"""

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
from dashboards.selection import DATASOURCE, buckets, now, over_time

Threshold = tuple[float, str]
MakeQuery = Callable[[str, str, str], prometheus.Dataquery]
REFS = string.ascii_uppercase
"""Names of a panel's queries, in their order."""


class Panel(Protocol):
    """A panel of a dashboard."""

    def builder(self, height: int) -> cog.Builder[model.Panel]:
        """Make Grafana's panel."""


class _Builder(Protocol):
    def title(self, title: str) -> Self: ...
    def description(self, description: str) -> Self: ...
    def datasource(self, datasource: model.DataSourceRef) -> Self: ...
    def unit(self, unit: str) -> Self: ...
    def thresholds(self, thresholds: cog.Builder[model.ThresholdsConfig]) -> Self: ...
    def targets(self, targets: list[cog.Builder[variants.Dataquery]]) -> Self: ...
    def span(self, w: int) -> Self: ...
    def height(self, h: int) -> Self: ...


B = TypeVar("B", bound=_Builder)


def described(
    builder: B,
    *,
    title: str,
    description: str,
    unit: str,
    queries: Sequence[prometheus.Dataquery],
    size: tuple[int, int],
    thresholds: Sequence[Threshold] = (),
) -> B:
    """Give a builder the parts that every panel has; ``size`` is its width and height."""
    steps = [model.Threshold(value=None, color="green")]
    steps += [model.Threshold(value=value, color=colour) for value, colour in thresholds]
    limits = build.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)
    return (
        builder.title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .thresholds(limits)
        .targets(list[cog.Builder[variants.Dataquery]](queries))
        .span(size[0])
        .height(size[1])
    )


@dataclass(frozen=True, slots=True)
class Chart:
    """A panel of some queries.

    Attributes:
        title: unique on its dashboard.
        description: says how to read it.
        unit: Grafana's name of the unit.
        queries: the expressions by the legend of their series; in a table, by the column's heading.
        width: in twenty-fourths of the page.
        thresholds: the values from which on a colour warns.
    """

    title: str
    description: str
    unit: str
    queries: Mapping[str, str]
    width: int = 12
    thresholds: tuple[Threshold, ...] = ()

    def _described(self, builder: B, height: int, query: MakeQuery = now) -> B:
        """Describe a builder; ``query`` makes its queries of expression, legend and reference."""
        return described(
            builder,
            title=self.title,
            description=self.description,
            unit=self.unit,
            queries=[query(*one) for one in self._by_ref()],
            size=(self.width, height),
            thresholds=self.thresholds,
        )

    def _by_ref(self) -> list[tuple[str, str, str]]:
        """Return expression, legend and reference of each query."""
        pairs = zip(self.queries.items(), REFS, strict=False)
        return [(expression, legend, ref) for (legend, expression), ref in pairs]


@dataclass(frozen=True, slots=True)
class Lines(Chart):
    """Curves over time, from zero.

    Attributes:
        colours: by a word the colour of the series whose names start with it.
        stacked: True to stack the curves, so that their sum can be read.
        dashed: the legend of a curve that is dashed.
        maximum: the upper end of the axis, if it is fixed.
    """

    colours: Mapping[str, str] = field(default_factory=dict)
    stacked: bool = False
    dashed: str = ""
    maximum: float | None = None

    def builder(self, height: int) -> timeseries.Panel:
        """Make Grafana's panel."""
        limits = common.GraphThresholdsStyleConfig().mode(
            shapes.GraphThresholdsStyleMode.DASHED
            if self.thresholds
            else shapes.GraphThresholdsStyleMode.OFF
        )
        panel = (
            self._described(timeseries.Panel(), height, over_time)
            .min(0)
            .color_scheme(by_name())
            .line_width(1 if self.stacked else 2)
            .fill_opacity(60 if self.stacked else 8)
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
        if self.stacked:
            stacking = common.StackingConfig().mode(shapes.StackingMode.NORMAL).group("A")
            panel = panel.stacking(stacking)
        if self.maximum is not None:
            panel = panel.max(self.maximum)
        for name, colour in self.colours.items():
            panel = panel.override_by_regexp(colours.starting_with(name), colours.fixed(colour))
        if self.dashed:
            ref = REFS[list(self.queries).index(self.dashed)]
            style = {"fill": "dash", "dash": [10, 10]}
            dashes = {"custom.lineStyle": style, "custom.fillOpacity": 0}
            panel = panel.override_by_query(ref, properties(dashes))
        return panel


@dataclass(frozen=True, slots=True)
class Number(Chart):
    """A large number for every series."""

    def builder(self, height: int) -> stat.Panel:
        """Make Grafana's panel."""
        return (
            self._described(stat.Panel(), height)
            .color_scheme(by_threshold())
            .color_mode(shapes.BigValueColorMode.VALUE)
            .graph_mode(shapes.BigValueGraphMode.NONE)
            .text_mode(shapes.BigValueTextMode.VALUE_AND_NAME)
            .reduce_options(_one_value())
            .no_value("—")
        )


@dataclass(frozen=True, slots=True)
class Bars(Chart):
    """A horizontal bar for every series."""

    def builder(self, height: int) -> bargauge.Panel:
        """Make Grafana's panel."""
        return (
            self._described(bargauge.Panel(), height)
            .min(0)
            .color_scheme(by_name())
            .orientation(shapes.VizOrientation.HORIZONTAL)
            .display_mode(shapes.BarGaugeDisplayMode.BASIC)
            .value_mode(shapes.BarGaugeValueMode.TEXT)
            .reduce_options(_one_value())
            .no_value("—")
        )


@dataclass(frozen=True, slots=True)
class Phases(Chart):
    """The phases of each run over time; the query gives their numbers in ``colours.PHASES``."""

    def builder(self, height: int) -> statetimeline.Panel:
        """Make Grafana's panel."""
        names = {
            str(number): model.ValueMappingResult(text=name, color=colour, index=number)
            for number, (name, colour) in enumerate(colours.PHASES.items(), 1)
        }
        return (
            self._described(statetimeline.Panel(), height, over_time)
            .color_scheme(by_threshold())
            .mappings([model.ValueMap(options=names)])
            .fill_opacity(80)
            .show_value(shapes.VisibilityMode.AUTO)
            .merge_values(True)
            .legend(common.VizLegendOptions().show_legend(False))
        )


@dataclass(frozen=True, slots=True)
class Density(Chart):
    """A heat map of a histogram over time; the unit is that of the buckets."""

    def builder(self, height: int) -> heatmap.Panel:
        """Make Grafana's panel."""
        return (
            self._described(heatmap.Panel(), height, buckets)
            .calculate(False)
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
            .y_axis(heatmap.YAxisConfig().unit(self.unit).axis_placement(shapes.AxisPlacement.LEFT))
            .exemplars_color("orange")
            .cell_gap(1)
            .show_legend()
            .show_y_histogram()
        )


def properties(values: Mapping[str, object]) -> list[model.DynamicConfigValue]:
    """Return options of a series or a column in Grafana's form."""
    return [model.DynamicConfigValue(id_val=name, value=value) for name, value in values.items()]


def by_name() -> build.FieldColor:
    """Return the scheme that gives each name a colour of the palette."""
    return build.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC_BY_NAME)


def by_threshold() -> build.FieldColor:
    """Return the scheme that shows the colour of the threshold that a value has passed."""
    return build.FieldColor().mode(model.FieldColorModeId.THRESHOLDS)


def _one_value() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields("")
