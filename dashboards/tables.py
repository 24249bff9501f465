"""Tables with a row for every run and algorithm: several queries joined on their labels."""

from collections.abc import Mapping, Sequence

from grafana_foundation_sdk.builders import prometheus, table
from grafana_foundation_sdk.models import dashboard as model

from dashboards.panels import by_threshold, described


def rows(
    title: str,
    description: str,
    unit: str,
    queries: Mapping[str, prometheus.Dataquery],
    *,
    size: tuple[int, int] = (12, 8),
    units: Mapping[str, str] | None = None,
    hidden: Sequence[str] = (),
) -> table.Panel:
    """Make a table with a row for every run and algorithm and a column for every query.

    ``queries`` has them by their headings, ``units`` the units of columns that differ from ``unit``;
    ``hidden`` are labels that get no column.
    """
    panel = described(table.Panel(), title, description, unit, list(queries.values()), size=size)
    # With a single query Grafana names the column Value, without a number.
    ids = [str(query.build().ref_id) for query in queries.values()]
    headings = {f"Value #{i}": heading for i, heading in zip(ids, queries, strict=True)}
    headings |= {"Value": next(iter(queries))} if len(queries) == 1 else {}
    left_out = dict.fromkeys(("Time", *hidden), True)
    panel = panel.color_scheme(by_threshold()).transformations(
        [
            model.DataTransformerConfig(id_val="merge", options={}),
            model.DataTransformerConfig(
                id_val="organize",
                options={
                    "excludeByName": left_out,
                    "indexByName": {"run": 0, "algorithm": 1},
                    "renameByName": headings,
                },
            ),
        ]
    )
    for heading, own in (units or {}).items():
        panel = panel.override_by_name(
            heading, [model.DynamicConfigValue(id_val="unit", value=own)]
        )
    return panel.no_value("—")
