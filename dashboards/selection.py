"""What a dashboard's user selects, and the queries that follow it.

Every query goes to the data source chosen above the panels and to the runs and algorithms chosen
there. Two kinds: over time (a rate, a state), and the last value inside the time range, which is still
there when the run is over and its exporter gone.
"""

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import prometheus
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
RUNS = 'run=~"$run", algorithm=~"$algorithm"'
LAYERS = ("wire", "message", "payload")
ACCURACIES = ("0.8", "0.9", "0.95", "0.97")


def of(metric: str, *matchers: str) -> str:
    """The selector of a metric for the chosen runs, and for the other labels' ``matchers``."""
    return f"{metric}{{{', '.join((RUNS, *matchers))}}}"


def rate(metric: str, *matchers: str) -> str:
    """A counter's increase per second."""
    return f"rate({of(metric, *matchers)}[$__rate_interval])"


def last(metric: str, *matchers: str) -> str:
    """The last value inside the time range, by run and algorithm."""
    return f"max by (run, algorithm) (last_over_time({of(metric, *matchers)}[$__range]))"


def over_time(expression: str, legend: str, ref_id: str = "A") -> prometheus.Dataquery:
    """A query for every step of the time range."""
    return _query(expression, ref_id).range().legend_format(legend)


def now(expression: str, legend: str, ref_id: str = "A") -> prometheus.Dataquery:
    """A query for the end of the time range."""
    return _query(expression, ref_id).instant().legend_format(legend)


def row(expression: str, ref_id: str) -> prometheus.Dataquery:
    """A column of a table: the query's labels and its value ``Value #ref_id``."""
    return _query(expression, ref_id).instant().format(PromQueryFormat.TABLE)


def points(expression: str, ref_id: str) -> prometheus.Dataquery:
    """A coordinate of points: a table with a row for every series and step."""
    return _query(expression, ref_id).range().format(PromQueryFormat.TABLE)


def buckets(expression: str) -> prometheus.Dataquery:
    """The buckets of a histogram over time."""
    query = _query(expression, "A").range().legend_format("{{le}}")
    return query.format(PromQueryFormat.HEATMAP)


def _query(expression: str, ref_id: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(expression).ref_id(ref_id).datasource(DATASOURCE)


def datasource() -> build.DatasourceVariable:
    """Which Prometheus."""
    return (
        build.DatasourceVariable("datasource")
        .label("Prometheus")
        .description("The Prometheus that scrapes the testbed.")
        .type("prometheus")
    )


def runs() -> build.QueryVariable:
    """Which runs, the newest first."""
    return _labels("run", "label_values(testbed_run_info, run)").sort(
        model.VariableSort.ALPHABETICAL_DESC
    )


def algorithms() -> build.QueryVariable:
    """Which algorithms of these runs."""
    return _labels("algorithm", 'label_values(testbed_run_info{run=~"$run"}, algorithm)').sort(
        model.VariableSort.ALPHABETICAL_ASC
    )


def layer() -> build.CustomVariable:
    """Which bytes a chart that has room for one kind shows."""
    return _choice("layer", "Bytes", LAYERS).description(
        "payload: encoded gradients; message: with framing; wire: with every header and ACK."
    )


def target() -> build.CustomVariable:
    """Which accuracy is to be reached."""
    return _choice("target", "Accuracy to reach", ACCURACIES[::-1]).description(
        "A share of the test set; the exporter keeps the ingress at which each was first reached."
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
