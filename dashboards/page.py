"""A dashboard's frame: variables, links to the others, marks of crashes and faults, rows.

Identifiers never change: the ``uid`` is the dashboard's name, and panels are numbered in their order.
Old links to a dashboard stay valid, and its JSON is the same bytes every time.
"""

from collections.abc import Sequence

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog import builder as cog
from grafana_foundation_sdk.models import dashboard as model

from dashboards import selection
from dashboards.panels import GRAFANA
from dashboards.selection import DATASOURCE, of

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


class _Ready(cog.Builder[model.AnnotationQuery]):
    """An annotation that needs no building."""

    def __init__(self, annotation: model.AnnotationQuery) -> None:
        self.annotation = annotation

    def build(self) -> model.AnnotationQuery:
        return self.annotation


def page(
    name: str,
    title: str,
    description: str,
    choices: Sequence[cog.Builder[model.VariableModel]] = (),
) -> build.Dashboard:
    """Make an empty dashboard with variables: data source, run, algorithm and ``choices``."""
    crashes = PrometheusAnnotation(
        "Crashes",
        CRASHES,
        "device lost",
        "{{device_class}}: {{algorithm}} {{run}}",
        "red",
    )
    faults = PrometheusAnnotation(
        "Faults", FAULTS, "fault: {{kind}}", "{{kind}}: {{algorithm}} {{run}}", "purple"
    )
    dashboard = (
        build.Dashboard(f"Testbed: {title}")
        .uid(f"testbed-{name}")
        .description(description)
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
        .annotation(_Ready(crashes))
        .annotation(_Ready(faults))
    )
    for variable in (
        selection.datasource(),
        selection.runs(),
        selection.algorithms(),
        *choices,
    ):
        dashboard = dashboard.with_variable(variable)
    return dashboard


def numbered(dashboard: model.Dashboard) -> model.Dashboard:
    """Number the panels in their order, and set the Grafana release of their options."""
    for number, panel in enumerate(dashboard.panels or [], 1):
        panel.id_val = number
        if isinstance(panel, model.Panel):
            panel.plugin_version = GRAFANA
    return dashboard


def row(title: str, repeated_for: str = "") -> build.Row:
    """Make a heading; it and its panels are repeated for each value of ``repeated_for``, if given."""
    heading = build.Row(title).collapsed(False)
    return heading.repeat(repeated_for) if repeated_for else heading
