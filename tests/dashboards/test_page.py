"""A dashboard's rows and panels, as the loop lays them out."""

import json
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards.page import Dashboard, Row
from dashboards.panels import Bars, Lines, Number
from dashboards.tables import Table


def laid_out(*rows: Row) -> list[dict[str, Any]]:
    model = Dashboard("tiny", "Tiny", "Nothing to see.", rows).model()
    panels: list[dict[str, Any]] = json.loads(json.dumps(model, cls=JSONEncoder))["panels"]
    return panels


def test_panels_stand_from_left_to_right_and_then_below() -> None:
    lines = Lines("L", "Lines.", "s", {"a": "x"})
    number = Number("N", "A number.", "s", {"a": "x"}, width=6)
    panels = laid_out(Row("", 5, (number, number, lines, lines)), Row("Below", 7, (lines,), "run"))
    places = [[one["gridPos"][key] for key in "xywh"] for one in panels]
    assert places[:4] == [[0, 0, 6, 5], [6, 0, 6, 5], [12, 0, 12, 5], [0, 5, 12, 5]]
    heading, below = panels[4:]
    assert (heading["type"], heading["title"], heading["repeat"]) == ("row", "Below", "run")
    assert (below["gridPos"]["y"], below["gridPos"]["h"]) == (heading["gridPos"]["y"] + 1, 7)
    assert [one["id"] for one in panels] == list(range(1, 7))


def test_what_a_panel_asks_follows_from_its_kind() -> None:
    queries = {"a": "x", "b": "y"}
    kinds = (Lines, Bars, Table)
    lines, bars, table = laid_out(
        Row("", 5, tuple(kind("T", "Says how.", "s", queries) for kind in kinds))
    )
    for panel, over_time in ((lines, True), (bars, False), (table, False)):
        assert [(one["refId"], one["expr"]) for one in panel["targets"]] == [("A", "x"), ("B", "y")]
        assert [one.get("range", False) for one in panel["targets"]] == [over_time] * 2
    assert [one["legendFormat"] for one in lines["targets"]] == ["a", "b"]
    assert {one["format"] for one in table["targets"]} == {"table"}
    renamed = table["transformations"][1]["options"]["renameByName"]
    assert renamed == {"Value #A": "a", "Value #B": "b"}


def test_a_curve_is_dashed_by_its_legend() -> None:
    (panel,) = laid_out(Row("", 5, (Lines("T", "How.", "s", {"a": "x", "b": "y"}, dashed="b"),)))
    (override,) = panel["fieldConfig"]["overrides"]
    assert override["matcher"] == {"id": "byFrameRefID", "options": "B"}
