"""The variables that a dashboard's user selects, and queries that follow them.

Every query asks the data source chosen above the panels for the runs and algorithms chosen there. There
are two kinds: over time (a rate, a state), and the last value inside the time range, which is still
there when the run is over and its exporter has ended.
"""

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import prometheus
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
RUNS = 'run=~"$run", algorithm=~"$algorithm"'
RUN = "{{algorithm}} {{run}}"
"""The legend of a series that stands for a run."""
LAYERS = ("wire", "message", "payload")
ACCURACIES = ("0.8", "0.9", "0.95", "0.97")


def of(metric: str, *matchers: str) -> str:
    """Return the selector of a metric for the chosen runs and for more ``matchers`` of labels."""
    return f"{metric}{{{', '.join((RUNS, *matchers))}}}"


def rate(metric: str, *matchers: str) -> str:
    """Return the expression for a counter's increase per second."""
    return f"rate({of(metric, *matchers)}[$__rate_interval])"


def last(metric: str, *matchers: str) -> str:
    """Return the expression for the last value inside the time range, by run and algorithm."""
    return f"max by (run, algorithm) (last_over_time({of(metric, *matchers)}[$__range]))"


def over_time(expression: str, legend: str, ref_id: str) -> prometheus.Dataquery:
    """Make a query for every step of the time range."""
    return _query(expression, ref_id).range().legend_format(legend)


def now(expression: str, legend: str, ref_id: str) -> prometheus.Dataquery:
    """Make a query for the end of the time range."""
    return _query(expression, ref_id).instant().legend_format(legend)


def row(expression: str, _: str, ref_id: str) -> prometheus.Dataquery:
    """Make a query for columns of a table: its labels and its value, ``Value #ref_id``."""
    return _query(expression, ref_id).instant().format(PromQueryFormat.TABLE)


def points(expression: str, ref_id: str) -> prometheus.Dataquery:
    """Make a query for a coordinate of points: a table with a row for every series and step."""
    return _query(expression, ref_id).range().format(PromQueryFormat.TABLE)


def buckets(expression: str, legend: str, ref_id: str) -> prometheus.Dataquery:
    """Make a query for the buckets of a histogram over time."""
    return over_time(expression, legend, ref_id).format(PromQueryFormat.HEATMAP)


def _query(expression: str, ref_id: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(expression).ref_id(ref_id).datasource(DATASOURCE)


def datasource() -> build.DatasourceVariable:
    """Make the variable that selects the Prometheus."""
    return (
        build.DatasourceVariable("datasource")
        .label("Prometheus")
        .description("The Prometheus that scrapes the testbed.")
        .type("prometheus")
    )


def runs() -> build.QueryVariable:
    """Make the variable that selects runs, the newest first."""
    return _labels("run", "label_values(testbed_run_info, run)").sort(
        model.VariableSort.ALPHABETICAL_DESC
    )


def algorithms() -> build.QueryVariable:
    """Make the variable that selects algorithms of the chosen runs."""
    return _labels("algorithm", 'label_values(testbed_run_info{run=~"$run"}, algorithm)').sort(
        model.VariableSort.ALPHABETICAL_ASC
    )


def layer() -> build.CustomVariable:
    """Make the variable that selects the bytes in charts with room for one kind."""
    return _choice("layer", "Bytes", LAYERS).description(
        "payload: encoded gradients; message: with framing; wire: with every header and ACK."
    )


def target() -> build.CustomVariable:
    """Make the variable that selects the accuracy to reach."""
    return _choice("target", "Accuracy to reach", ACCURACIES[::-1]).description(
        "A share of the test set; the exporter keeps the ingress at which each was first reached."
    )


def measure() -> build.QueryVariable:
    """Make the variable that selects measures of the chosen runs' own."""
    return _labels("measure", 'label_values(testbed_measured{run=~"$run"}, measure)').sort(
        model.VariableSort.ALPHABETICAL_ASC
    )


def _labels(name: str, query: str) -> build.QueryVariable:
    everything = model.VariableOption(text=["All"], value=["$__all"])
    return (
        build.QueryVariable(name)
        .label(name.capitalize())
        .description(f"Series of which {name}s are shown.")
        .datasource(DATASOURCE)
        .query({"query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"})
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".+")
        .current(everything)
    )


def _choice(name: str, label: str, values: tuple[str, ...]) -> build.CustomVariable:
    options = [
        model.VariableOption(selected=value == values[0], text=value, value=value)
        for value in values
    ]
    return (
        build.CustomVariable(name)
        .label(label)
        .values(",".join(values))
        .options(options)
        .current(options[0])
    )
