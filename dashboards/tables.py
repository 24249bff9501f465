"""Tables with a row for every run and algorithm: several queries joined on their labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.models import dashboard as model

from dashboards.panels import Chart, by_threshold, properties
from dashboards.selection import row


@dataclass(frozen=True, slots=True)
class Table(Chart):
    """A table with a row for every run and algorithm, and a column for every query.

    Attributes:
        units: by headings the units of columns that differ from ``unit``.
        hidden: labels that get no column.
    """

    units: Mapping[str, str] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()

    def builder(self, height: int) -> table.Panel:
        """Make Grafana's panel."""
        queries = self._by_ref()
        headings = {f"Value #{ref}": heading for _, heading, ref in queries}
        if len(queries) == 1:  # then Grafana names the column Value, without a reference
            headings["Value"] = queries[0][1]
        columns = {
            "excludeByName": dict.fromkeys(("Time", *self.hidden), True),
            "indexByName": {"run": 0, "algorithm": 1},
            "renameByName": headings,
        }
        panel = (
            self._described(table.Panel(), height, row)
            .color_scheme(by_threshold())
            .transformations(
                [
                    model.DataTransformerConfig(id_val="merge", options={}),
                    model.DataTransformerConfig(id_val="organize", options=columns),
                ]
            )
            .no_value("—")
        )
        for heading, unit in self.units.items():
            panel = panel.override_by_name(heading, properties({"unit": unit}))
        return panel
