"""What Grafana does between a dashboard's JSON and Prometheus, written from its documentation.

Variables are put into queries, a query over time is asked in steps, and a query for now at the end of
the time range.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "dashboards" / "json"
SCRAPE_INTERVAL = 1
"""Seconds; the data source's timeInterval."""


def dashboards() -> dict[str, dict[str, Any]]:
    """Every committed dashboard, by its file's name without the suffix."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def panels(dashboard: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The panels that show something, those inside collapsed rows too."""
    found = []
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            found += panel["panels"]
        else:
            found.append(panel)
    return found


@dataclass(frozen=True)
class Query:
    """One query of one panel, as it stands in the JSON."""

    dashboard: str
    panel: str
    ref_id: str
    expression: str
    instant: bool

    @property
    def name(self) -> str:
        return f"{self.dashboard}: {self.panel} [{self.ref_id}]"


def queries() -> Iterator[Query]:
    """Every query of every panel and of every annotation."""
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
    """A value of a variable with several, as it stands inside a string of a regular expression."""
    doubled = value.replace("\\", "\\\\\\\\")
    return re.sub(r"[$^*{}\[\]'+?.()|]", r"\\\\\g<0>", doubled)


def chosen(*values: str) -> str:
    """What a variable with several values becomes; none chosen: all of them."""
    if not values:
        return ".+"
    several = [escaped(value) for value in values]
    return several[0] if len(several) == 1 else f"({'|'.join(several)})"


def interpolated(
    expression: str, variables: Mapping[str, str], *, step: float, seconds: float
) -> str:
    """The query that Prometheus gets: ``step`` and ``seconds`` of the time range."""
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
