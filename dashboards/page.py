"""A dashboard as a record of rows of panels, and the one place where it is laid out.

Every dashboard has the same frame: variables, links to the others, marks of crashes and faults.

Identifiers never change: the ``uid`` is the dashboard's name, and panels are numbered in their order.
Old links to a dashboard stay valid, and its JSON is the same bytes every time.
"""

from collections.abc import Callable
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog import builder as cog
from grafana_foundation_sdk.models import dashboard as model

from dashboards import selection
from dashboards.panels import Panel
from dashboards.selection import DATASOURCE, of

GRAFANA = "11.6.16"
"""The release of compose/observability.yml, whose panels the options are written for."""
TAG = "testbed"
CRASHES = (
    "sum by (run, algorithm, device_class) "
    f"(changes({of('testbed_devices_lost_total')}[$__rate_interval]))"
)
FAULTS = f"sum by (run, algorithm, kind) (changes({of('testbed_faults_total')}[$__rate_interval]))"


class PrometheusAnnotation(model.AnnotationQuery):
    """Marks on every time axis where a query is above zero.

    The SDK's type has only the fields that annotations of all data sources have.
    """

    def __init__(self, name: str, expression: str, title: str, labels: str, colour: str) -> None:
        super().__init__(name=name, datasource=DATASOURCE, enable=True, icon_color=colour)
        self.expression = expression
        self.title = title
        self.labels = labels

    def to_json(self) -> dict[str, object]:
        return super().to_json() | {
            "target": {"expr": self.expression, "interval": "1s", "refId": "Anno", "range": True},
            "titleFormat": self.title,
            "textFormat": self.labels,
            "tagKeys": "run,algorithm",
        }


ANNOTATIONS = (
    PrometheusAnnotation(
        "Crashes", CRASHES, "device lost", "{{device_class}}: {{algorithm}} {{run}}", "red"
    ),
    PrometheusAnnotation(
        "Faults", FAULTS, "fault: {{kind}}", "{{kind}}: {{algorithm}} {{run}}", "purple"
    ),
)


class _Ready(cog.Builder[model.AnnotationQuery]):
    """An annotation that needs no building."""

    def __init__(self, annotation: model.AnnotationQuery) -> None:
        self.annotation = annotation

    def build(self) -> model.AnnotationQuery:
        return self.annotation


@dataclass(frozen=True, slots=True)
class Row:
    """Panels of one height, from left to right and then below.

    Attributes:
        title: the heading above them; empty for none.
        repeated_for: a variable for each of whose values heading and panels are repeated, if any.
    """

    title: str
    height: int
    panels: tuple[Panel, ...]
    repeated_for: str = ""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard.

    Attributes:
        name: its identifier and the name of its file.
        title: the heading of the page.
        description: a sentence for the list of dashboards.
        rows: from top to bottom.
        choices: make the variables that it has besides data source, run and algorithm.
    """

    name: str
    title: str
    description: str
    rows: tuple[Row, ...]
    choices: tuple[Callable[[], cog.Builder[model.VariableModel]], ...] = ()

    def model(self) -> model.Dashboard:
        """Lay the rows out, and return Grafana's dashboard with its panels numbered in order."""
        page = _frame(self)
        for row in self.rows:
            if row.title:
                heading = build.Row(row.title).collapsed(False)
                page = page.with_row(
                    heading.repeat(row.repeated_for) if row.repeated_for else heading
                )
            for panel in row.panels:
                page = page.with_panel(panel.builder(row.height))
        built = page.build()
        for number, one in enumerate(built.panels or [], 1):
            one.id_val = number
            if isinstance(one, model.Panel):
                one.plugin_version = GRAFANA
        return built


def _frame(dashboard: Dashboard) -> build.Dashboard:
    """Return Grafana's dashboard with its variables, links and annotations, but without panels."""
    frame = (
        build.Dashboard(f"Testbed: {dashboard.title}")
        .uid(f"testbed-{dashboard.name}")
        .description(dashboard.description)
        .tags([TAG])
        .readonly()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .refresh("5s")
        .time("now-15m", "now")
        .timezone("browser")
        .timepicker(build.TimePicker().refresh_intervals(["1s", "5s", "10s", "30s", "1m", "5m"]))
        .link(
            build.DashboardLink("Testbed")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .tooltip("The testbed's other dashboards, for the same runs and times")
            .include_vars(True)
            .keep_time(True)
        )
    )
    for annotation in ANNOTATIONS:
        frame = frame.annotation(_Ready(annotation))
    always = (selection.datasource, selection.runs, selection.algorithms)
    for variable in (*always, *dashboard.choices):
        frame = frame.with_variable(variable())
    return frame
