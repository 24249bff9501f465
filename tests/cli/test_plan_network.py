"""``testbed plan`` draws the network: as text, as JSON, and into a file."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from testbed.cli import app
from tests.docs.blocks import REPOSITORY, blocks
from tests.planning.test_graph_source import BASE
from tests.planning.test_routes import CLUSTERS

GRAPH = "network: {uplink: 20mbit, graph: {topohub: sndlib/germany50, rate: 100mbit}}\n"


def run(folder: Path, network: str, *arguments: str) -> tuple[int, str]:
    path = folder / "spec.yaml"
    path.write_text(BASE + network)
    result = CliRunner().invoke(app, ["plan", str(path), *arguments])
    return result.exit_code, result.output if result.exit_code == 0 else str(result.exception)


def test_the_plan_draws_clusters_and_their_routes(tmp_path: Path) -> None:
    status, said = run(tmp_path, CLUSTERS)
    assert status == 0, said
    assert "network of asgd:" in said
    assert "├─ campus" in said and "4 workers, worker-0 to worker-3" in said
    assert "routes to the server" in said and "─ village ─ core ─ server:" in said


@pytest.mark.parametrize("name", ["clusters", "co-located"])
def test_the_page_on_links_has_what_is_printed(name: str) -> None:
    (page,) = (one for one in blocks() if one.first == f"network of {name}-adacomp:")
    spec = REPOSITORY / "experiments" / f"agree-{name}.yaml"
    result = CliRunner().invoke(app, ["plan", str(spec)])
    assert page.text in result.output


def test_a_star_has_a_line_for_its_workers(tmp_path: Path) -> None:
    _, said = run(tmp_path, "network: {uplink: 10mbit}\n", "--set", "devices.workers=100")
    drawn = said[said.index("network of") : said.index("routes to")].splitlines()
    assert len(drawn) == 5
    assert "100 workers, worker-0 to worker-99" in drawn[-1]


@pytest.mark.parametrize("network", [CLUSTERS, GRAPH])
def test_the_drawing_is_an_svg(tmp_path: Path, network: str) -> None:
    path = tmp_path / "new" / "network.svg"
    status, said = run(tmp_path, network, "--drawing", str(path))
    assert status == 0 and f"drawing: {path}" in said
    root = ElementTree.parse(path).getroot()
    assert root.tag.endswith("svg") and "The network of asgd" in root.attrib["aria-label"]


def test_the_drawing_is_mermaid_where_its_name_says_so(tmp_path: Path) -> None:
    path = tmp_path / "network.mmd"
    status, said = run(tmp_path, CLUSTERS, "--drawing", str(path))
    assert status == 0 and f"drawing: {path}" in said
    text = path.read_text(encoding="utf-8")
    assert "flowchart LR" in text and '["village"]' in text
    assert re.search(r"^  %% .* ─ village ─ core ─ server: ", text, re.MULTILINE)


def test_the_routers_of_topohub_are_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "network.svg"
    run(tmp_path, GRAPH, "--drawing", str(path))
    place = {
        text.text: (float(text.attrib["x"]), float(text.attrib["y"]))
        for text in ElementTree.parse(path).getroot().iter("{http://www.w3.org/2000/svg}text")
    }
    assert place["Flensburg"][1] < place["Kassel"][1] < place["Kempten"][1]
    assert place["Aachen"][0] < place["Dresden"][0]


def test_json_has_every_route(tmp_path: Path) -> None:
    status, said = run(tmp_path, GRAPH, "--json")
    assert status == 0
    (told,) = json.loads(said)
    assert sum(len(one["callers"]) for one in told["routes"]) == 6
    for one in told["routes"]:
        assert one["called"] == "server" and one["path"][-1] == "core"
        assert one["there"]["rate"] <= 20e6 and one["there"]["delay"] >= 0


def test_a_drawing_of_another_kind_is_refused(tmp_path: Path) -> None:
    status, said = run(tmp_path, CLUSTERS, "--drawing", str(tmp_path / "network.png"))
    assert status != 0 and "let its name end in .svg or .mmd" in said


def test_a_drawing_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status, said = run(tmp_path, CLUSTERS, "--drawing", str(tmp_path / "file" / "network.svg"))
    assert status != 0 and "cannot be written" in said
