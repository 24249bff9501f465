"""The committed dashboards: up to date and complete. No Grafana is needed."""

import itertools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.dashboards.grafana import REPOSITORY, dashboards, panels, queries

NAMES = sorted(dashboards())
COLOURS = {
    "text",
    *(
        f"{shade}{hue}"
        for shade in ("super-light-", "light-", "", "semi-dark-", "dark-")
        for hue in ("red", "orange", "yellow", "green", "blue", "purple")
    ),
}
"""Grafana's palette, which has a shade of each colour for its light and for its dark theme."""
BUILT_IN = {"__rate_interval", "__interval", "__range", "__all", "__field"}


def generate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dashboards", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_there_are_four_dashboards() -> None:
    assert NAMES == ["compare", "devices", "ingress", "network"]


def test_the_dashboards_are_those_that_the_code_makes() -> None:
    done = generate(REPOSITORY, "--check")
    assert done.returncode == 0, done.stderr


def test_the_check_notices_changed_and_superfluous_files(tmp_path: Path) -> None:
    shutil.copytree(
        REPOSITORY / "dashboards",
        tmp_path / "dashboards",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    folder = tmp_path / "dashboards" / "json"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    changed = folder / "network.json"
    changed.write_text(changed.read_text().replace("Uplinks", "Links"))
    (folder / "forgotten.json").write_text("{}")
    done = generate(tmp_path, "--check")
    assert done.returncode == 1
    assert "forgotten.json, network.json" in done.stderr
    assert "python -m dashboards" in done.stderr
    assert generate(tmp_path).returncode == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def is_part_of(one: Any, other: Any) -> bool:
    """Return True if everything in a JSON value is in another one, which may have more keys."""
    if isinstance(one, dict):
        return isinstance(other, dict) and all(
            key in other and is_part_of(value, other[key]) for key, value in one.items()
        )
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_part_of, one, other))
    return bool(one == other)


@pytest.mark.parametrize("name", NAMES)
def test_grafanas_own_schema_knows_every_key(name: str) -> None:
    """The SDK's types read and write a dashboard without loss, so no option is misspelt."""
    plugins.register_default_plugins()
    dashboard = dashboards()[name]
    # The type of annotations lacks the fields that belong to one data source.
    del dashboard["annotations"]
    read = Dashboard.from_json(dashboard)
    assert is_part_of(dashboard, json.loads(json.dumps(read, cls=JSONEncoder)))
    next(panel for panel in panels(dashboard) if "options" in panel)["options"]["mispelt"] = True
    read = Dashboard.from_json(dashboard)
    assert not is_part_of(dashboard, json.loads(json.dumps(read, cls=JSONEncoder)))


@pytest.mark.parametrize("name", NAMES)
def test_a_dashboard_has_links_annotations_and_variables(name: str) -> None:
    dashboard = dashboards()[name]
    assert dashboard["uid"] == f"testbed-{name}"
    assert "id" not in dashboard
    assert dashboard["schemaVersion"] == 41  # Grafana 11.6
    assert dashboard["tags"] == ["testbed"]
    assert dashboard["refresh"] == "5s"
    assert dashboard["time"] == {"from": "now-15m", "to": "now"}
    assert dashboard["description"].endswith(".")
    [links] = dashboard["links"]
    assert (links["tags"], links["includeVars"], links["keepTime"]) == (["testbed"], True, True)
    crashes, faults = dashboard["annotations"]["list"]
    assert "testbed_devices_lost_total" in crashes["target"]["expr"]
    assert "testbed_faults_total" in faults["target"]["expr"]
    assert "kind" in faults["titleFormat"]
    assert crashes["iconColor"] != faults["iconColor"]
    variables = {one["name"]: one for one in dashboard["templating"]["list"]}
    assert variables["datasource"]["query"] == "prometheus"
    for label in ("run", "algorithm"):
        variable = variables[label]
        assert re.fullmatch(rf"label_values\(.*, {label}\)", variable["query"]["query"])
        assert variable["multi"]
        assert variable["includeAll"]
        assert variable["current"]["value"] == ["$__all"]


@pytest.mark.parametrize("name", NAMES)
def test_a_panel_has_a_title_a_description_a_unit_and_queries(name: str) -> None:
    dashboard = dashboards()[name]
    shown = panels(dashboard)
    titles = [panel["title"] for panel in shown]
    assert len(set(titles)) == len(titles) >= 5
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert numbers == list(range(1, len(numbers) + 1))
    for panel in shown:
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["title"]
        assert panel["description"].rstrip().endswith("."), panel["title"]
        assert defaults["unit"], panel["title"]
        assert defaults["thresholds"]["steps"][0]["value"] is None
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        ref_ids = [target["refId"] for target in panel["targets"]]
        assert len(set(ref_ids)) == len(ref_ids)


@pytest.mark.parametrize("name", NAMES)
def test_panels_do_not_overlap_and_fill_their_rows(name: str) -> None:
    places = [panel["gridPos"] for panel in dashboards()[name]["panels"]]
    for place in places:
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
    for one, other in itertools.combinations(places, 2):
        apart_across = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart_down = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart_across or apart_down, (one, other)
    for y in {place["y"] for place in places}:
        beside = [place for place in places if place["y"] == y]
        assert sum(place["w"] for place in beside) == 24, beside
        assert len({place["h"] for place in beside}) == 1, beside


def colours(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from colours(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from colours(inner, key)
    elif key in ("color", "fixedColor", "iconColor", "lineColor") and isinstance(value, str):
        yield value


@pytest.mark.parametrize("name", NAMES)
def test_colours_are_of_the_palette_and_the_same_for_the_same_layer(name: str) -> None:
    dashboard = dashboards()[name]
    used = set(colours(dashboard))
    assert used
    assert used <= COLOURS
    of_layers: dict[str, set[str]] = {}
    for panel in panels(dashboard):
        for override in panel["fieldConfig"]["overrides"]:
            if override["matcher"]["id"] == "byRegexp":
                found = of_layers.setdefault(override["matcher"]["options"], set())
                found.update(colours(override["properties"]))
    assert all(len(found) == 1 for found in of_layers.values()), of_layers


def test_a_layer_has_one_colour_on_every_dashboard() -> None:
    found: dict[str, set[str]] = {"payload": set(), "message": set(), "wire": set()}
    for dashboard in dashboards().values():
        for panel in panels(dashboard):
            for override in panel["fieldConfig"]["overrides"]:
                for layer, names in found.items():
                    if override["matcher"]["options"] == f"/^{layer}( |$)/":
                        names.update(colours(override["properties"]))
    assert all(len(names) == 1 for names in found.values())
    assert len(set.union(*found.values())) == 3


def test_every_variable_of_a_query_is_one_of_its_dashboard() -> None:
    for name, dashboard in dashboards().items():
        declared = {one["name"] for one in dashboard["templating"]["list"]}
        used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard)))
        assert used <= declared | BUILT_IN, name
        # Queries use each variable but the data source, which every panel uses.
        asked = " ".join(query.expression for query in queries() if query.dashboard == name)
        assert all(f"${one}" in asked for one in declared - {"datasource"}), name


def test_an_xy_chart_joins_its_two_queries_into_a_table_for_each_run() -> None:
    charts = [
        panel
        for dashboard in dashboards().values()
        for panel in panels(dashboard)
        if panel["type"] == "xychart"
    ]
    assert len(charts) == 9
    for chart in charts:
        assert {t["refId"]: t["format"] for t in chart["targets"]} == {"X": "table", "Y": "table"}
        assert [t["id"] for t in chart["transformations"]] == [
            "merge",
            "sortBy",
            "partitionByValues",
        ]
        [series] = chart["options"]["series"]
        # Grafana's name for the value of a table query that is one of several.
        assert series["x"]["matcher"] == {"id": "byName", "options": "Value #X"}
        assert series["y"]["matcher"] == {"id": "byName", "options": "Value #Y"}
        # Without it Grafana would take the options for those of its older chart, and migrate them.
        assert chart["pluginVersion"].startswith("11.6")
