"""Grafana's part between a dashboard's JSON and Prometheus, written from its documentation.

It puts variables into queries, asks a query over time in steps, and an instant query at the end of
the time range.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.dashboards.server import Prometheus, Series

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "dashboards" / "json"
SCRAPE_INTERVAL = 1
"""Seconds; the data source's ``timeInterval``."""


def dashboards() -> dict[str, dict[str, Any]]:
    """Return every committed dashboard, by its file's name without the suffix."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def panels(dashboard: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the panels that show something, including those inside collapsed rows."""
    found = []
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            found += panel["panels"]
        else:
            found.append(panel)
    return found


@dataclass(frozen=True)
class Query:
    """One query of one panel or annotation, as it is in the JSON."""

    dashboard: str
    panel: str
    ref_id: str
    expression: str
    instant: bool

    @property
    def name(self) -> str:
        return f"{self.dashboard}: {self.panel} [{self.ref_id}]"

    def ask(
        self,
        prometheus: Prometheus,
        values: Mapping[str, str],
        start: float,
        end: float,
        step: float,
    ) -> list[Series]:
        """Return the series that the panel would get; an instant query's have one value each."""
        text = interpolated(self.expression, values, step=step, seconds=end - start)
        if self.instant:
            return [(labels, [(end, value)]) for labels, value in prometheus.at(text, end)]
        return prometheus.over(text, start, end, step)


def queries() -> Iterator[Query]:
    """Yield every query of every panel and of every annotation."""
    for name, dashboard in dashboards().items():
        for panel in panels(dashboard):
            for target in panel["targets"]:
                yield Query(
                    name,
                    panel["title"],
                    target["refId"],
                    target["expr"],
                    bool(target.get("instant")),
                )
        for annotation in dashboard["annotations"]["list"]:
            target = annotation["target"]
            yield Query(name, annotation["name"], target["refId"], target["expr"], False)


def escaped(value: str) -> str:
    """Escape one of a variable's several values for a string that holds a regular expression."""
    doubled = value.replace("\\", "\\\\\\\\")
    return re.sub(r"[$^*{}\[\]'+?.()|]", r"\\\\\g<0>", doubled)


def chosen(*values: str) -> str:
    """Return the text of a variable with several values; if none is chosen, it matches all."""
    if not values:
        return ".+"
    several = [escaped(value) for value in values]
    return several[0] if len(several) == 1 else f"({'|'.join(several)})"


def interpolated(
    expression: str, variables: Mapping[str, str], *, step: float, seconds: float
) -> str:
    """Return the query that Prometheus gets for a time range of ``seconds``, asked every ``step``."""
    rate_interval = max(step + SCRAPE_INTERVAL, 4 * SCRAPE_INTERVAL)
    values = {
        "__rate_interval": f"{rate_interval:g}s",
        "__interval": f"{step:g}s",
        "__range": f"{seconds:.0f}s",
        **variables,
    }

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        assert name in values, f"${name} is no variable of the dashboard: {expression}"
        return values[name]

    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", value, expression)
