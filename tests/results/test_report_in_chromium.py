"""``report.html`` in a real Chromium: it draws its charts, logs nothing, and its switches work."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from testbed.results.reading.curves import curves_of
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.report.report import write_report
from testbed.results.tables.reaching import reaching
from tests.chromium import chromium, chromium_needed, look, watched
from tests.results.conftest import accounting_table, fault, traffic, writer_of_runs
from tests.results.test_quality import falling

pytestmark = [chromium_needed, pytest.mark.exercises("Chromium")]

# Each visible chart: the number of curves that have an extent, its width, its axes' text.
CHARTS = """
[...document.querySelectorAll(".chart:not([hidden])")].map(chart => ({
  id: chart.id,
  curves: [...chart.querySelectorAll(".trace path.js-line, .trace .js-fill")]
    .filter(path => path.getTotalLength() > 20).length,
  width: chart.querySelector("svg.main-svg")?.getBoundingClientRect().width ?? 0,
  titles: [...chart.querySelectorAll(".xtitle, .ytitle")].map(title => title.textContent),
  ticks: [...chart.querySelectorAll(".xtick text, .ytick text")].map(tick => tick.textContent),
}))
"""
# Relative luminance (WCAG) of the page's background, of its text, and of the charts' text and colours.
LUMINANCES = """(() => {
  const luminance = (css) => {
    const [r, g, b] = css.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const style = (selector) => getComputedStyle(document.querySelector(selector));
  return {
    page: luminance(style("body").backgroundColor === "rgba(0, 0, 0, 0)"
      ? style("html").backgroundColor : style("body").backgroundColor),
    text: luminance(style("body").color),
    ticks: luminance(style("#chart-ingress .xtick text").fill),
    legend: luminance(style("#chart-ingress .legendtext").fill),
    curves: [...document.querySelectorAll("#chart-ingress .trace path.js-line")]
      .map(path => luminance(getComputedStyle(path).stroke)),
    kinds: [...document.querySelectorAll("#chart-ingress-over-time-0 .legendfill path")]
      .map(path => luminance(getComputedStyle(path).fill)),
  };
})()"""
REACHED = """[...document.querySelectorAll("#reached tr")]
  .map(row => [...row.children].map(cell => cell.innerText.trim().replaceAll("\\u00a0", " ")))"""


def contrast(one: float, other: float) -> float:
    """Return WCAG's contrast ratio of two luminances, from 1 to 21."""
    darker, lighter = sorted((one, other))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RecordedRun]:
    """Captured runs: ASGD, Comp-ASGD, and AdaComp with two seeds."""
    write_run = writer_of_runs(tmp_path_factory.mktemp("runs"))
    both = {"accounting": accounting_table(30, 1_000_000), "traffic": traffic()}
    again = "quickstart/20261121-074902-2"
    written = [
        write_run("asgd", **both),
        write_run("comp-asgd-0.01", payload=17_000, speed=90, **both),
        write_run("adacomp-0.01", payload=17_000, speed=30, **both),
        write_run("adacomp-0.01", again, payload=17_000, speed=35, seed=2, **both),
    ]
    return [RecordedRun.load(run) for run in written]


@dataclass
class Watched:
    """What a page has complained of, and requested."""

    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def watch() -> Watched:
    return Watched()


@pytest.fixture(scope="module")
def page(watch: Watched) -> Iterator[Page]:
    with chromium() as browser:
        yield watched(browser.new_context(), watch.complaints, watch.requests)


@pytest.fixture(scope="module")
def address(runs: list[RecordedRun], tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_report(runs, tmp_path_factory.mktemp("report") / "report.html").as_uri()


@pytest.fixture
def report(page: Page, address: str, watch: Watched) -> Page:
    """The report, as it is when it has been opened."""
    look(page)
    if page.url != address:  # opening it takes as long as a test
        page.goto("about:blank")
        watch.requests.clear()
        watch.complaints.clear()
        page.goto(address)
    return page


@pytest.fixture
def own_report(report: Page) -> Iterator[Page]:
    """The report, in which a test may choose and type: the next test opens it anew."""
    yield report
    report.goto("about:blank")


def charts(page: Page) -> dict[str, dict[str, Any]]:
    return {chart["id"]: chart for chart in page.evaluate(CHARTS)}


def expected(runs: list[RecordedRun], accuracy: float, measure: str) -> list[list[str]]:
    table = reaching(curves_of(runs), accuracy, measure=measure)  # type: ignore[arg-type]
    return [list(table.headings), *map(list, table.cells)]


def test_the_page_shows_what_its_link_asks_for(page: Page, tmp_path: Path, watch: Watched) -> None:
    """The link sets the switches and the accuracy, and the table follows them."""
    write_run = writer_of_runs(tmp_path / "runs")
    accounting = accounting_table(30, 1_000_000)
    seeds = [RecordedRun.load(write_run("asgd", accounting=accounting, traffic=traffic()))]
    for seed, speed in enumerate((25, 30, 40), 1):
        own = {"payload": 17_000, "speed": speed, "seed": seed, "accounting": accounting}
        name = f"quickstart/20261121-07490{seed}-{seed}"
        run = write_run("adacomp-0.01", name, traffic=traffic(dropped=seed == 3), **own)
        seeds.append(RecordedRun.load(run))
    address = write_report(seeds, tmp_path / "report.html").as_uri()
    look(page)
    for view, accuracy, measure in (
        ("", 97.0, "wire"),
        ("#ingress=payload&axis=linear&accuracy=90", 90.0, "payload"),
    ):
        page.goto("about:blank")
        page.goto(address + view)
        # The page computes the same table as the code here.
        assert page.evaluate(REACHED) == expected(seeds, accuracy, measure)
        drawn = charts(page)
        assert f"PS ingress, {measure} bytes" in drawn["chart-ingress"]["titles"]
        assert page.locator(".js-plotly-plot").count() >= 6
        if measure == "payload":
            assert {"100MB", "50MB"} & set(drawn["chart-ingress"]["ticks"])
        shown = re.sub(r"<script.*?</script>", "", page.content(), flags=re.DOTALL)
        assert "NaN" not in shown
        assert "lost 1 of 1,001 packets" in shown
    assert watch.complaints == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_chart_is_drawn_and_can_be_read(
    report: Page, dark: bool, tmp_path: Path, watch: Watched
) -> None:
    look(report, dark=dark)
    drawn = charts(report)
    assert {
        "chart-ingress",
        "chart-iteration",
        "chart-ingress-by-worker",
        "chart-staleness",
    } <= set(drawn)
    assert len([name for name in drawn if name.startswith("chart-ingress-over-time-")]) == 3
    for name, chart in drawn.items():
        assert chart["curves"] >= (2 if "over-time" in name else 3), name
        assert chart["width"] > 500, name
        assert len(chart["titles"]) == 2, name
        assert len(chart["ticks"]) >= 4, name
        assert not any("NaN" in text or "undefined" in text for text in chart["ticks"]), name
    light = report.evaluate(LUMINANCES)
    assert (light["page"] < 0.1) == dark
    for part in ("text", "ticks", "legend"):
        assert contrast(light["page"], light[part]) >= 4.5, part  # WCAG AA for text
    assert len(light["curves"]) >= 3
    for curve in light["curves"]:
        assert contrast(light["page"], curve) >= 3  # and for graphics
    assert len(light["kinds"]) >= 6
    for kind in light["kinds"]:
        assert contrast(light["page"], kind) >= 1.5  # an area that can be told from the page
    picture = report.screenshot(path=tmp_path / "report.png", full_page=True)
    assert len(picture) > 50_000
    assert watch.complaints == []


def test_the_report_requests_nothing_but_itself(report: Page, watch: Watched) -> None:
    [itself] = [url for url in watch.requests if not url.startswith("data:")]
    assert itself.endswith("report.html")


def test_the_switches_change_the_chart_and_the_table(
    own_report: Page, runs: list[RecordedRun], watch: Watched
) -> None:
    def shown() -> dict[str, Any]:
        return charts(own_report)["chart-ingress"]

    def axis() -> list[str]:
        return [text for text in shown()["ticks"] if text.endswith("B")]

    assert own_report.evaluate(REACHED) == expected(runs, 88.0, "wire")
    assert "PS ingress, wire bytes" in shown()["titles"]
    logarithmic = axis()
    for measure in ("payload", "message", "wire"):
        own_report.click(f"label:has(input[value={measure}])")
        assert f"PS ingress, {measure} bytes" in shown()["titles"]
        assert own_report.evaluate(REACHED) == expected(runs, 88.0, measure)
    own_report.click("label:has(input[value=linear])")
    assert "0B" in axis()
    assert axis() != logarithmic
    own_report.click("label:has(input[value=log])")
    assert axis() == logarithmic
    own_report.fill("input[name=goal]", "90")
    assert own_report.evaluate(REACHED) == expected(runs, 90.0, "wire")
    assert watch.complaints == []


def test_an_open_report_follows_the_colour_scheme_of_the_browser(report: Page) -> None:
    before = report.evaluate(LUMINANCES)
    look(report, dark=True)
    after = report.evaluate(LUMINANCES)
    assert after["page"] < before["page"]
    assert after["ticks"] > before["ticks"]
    assert after["curves"] != before["curves"]


def test_the_report_fits_a_narrow_window(report: Page, tmp_path: Path, watch: Watched) -> None:
    look(report, width=390)
    report.screenshot(path=tmp_path / "narrow.png", full_page=True)
    # Wider content scrolls in its own box.
    assert report.evaluate("document.documentElement.scrollWidth") <= 390
    assert all(200 < chart["width"] <= 390 for chart in charts(report).values())
    assert watch.complaints == []


def point_at(page: Page, place: str, wanted: str) -> None:
    """Point at a place of ``chart-iteration`` until the chart tells what is wanted there.

    It may still be laid out, and moves below the mouse; and it tells a moment later.

    Args:
        place: an expression whose value is where, in pixels.
    """
    told = page.locator("#chart-iteration .hoverlayer text")
    for _ in range(50):
        x, y = page.evaluate(place)
        for offset in (-2, 0):
            page.mouse.move(x + offset, y)
        page.wait_for_timeout(100)
        if re.search(wanted, " ".join(told.all_text_contents())):
            return
    raise AssertionError(f"{wanted} is not told: {told.all_text_contents()}")


def test_a_chart_shows_the_value_under_the_mouse(report: Page, watch: Watched) -> None:
    middle = """(() => {
      const chart = document.querySelector("#chart-iteration");
      chart.scrollIntoView({block: "center"});
      const box = chart.querySelector(".trace path.js-line").getBoundingClientRect();
      return [box.x + box.width / 2, box.y + box.height / 3];
    })()"""
    point_at(report, middle, "asgd|adacomp")
    assert watch.complaints == []


# Ticks and bars below the curves, curves of living workers, labels of server kills, the legend.
FAULTS = """
["chart-ingress", "chart-iteration"].map(id => {
  const chart = document.getElementById(id);
  const strip = chart.querySelector(".xy3") ? ".xy3" : ".xy2";
  const living = chart.querySelectorAll(".xy2 .lines path.js-line").length;
  return {
    ticks: chart.querySelectorAll(`${strip} .points path`).length,
    bars: [...chart.querySelectorAll(`${strip} .lines path.js-line`)]
      .filter(path => path.getTotalLength() > 5).length,
    living: strip === ".xy3" ? living : 0,
    kills: [...chart.querySelectorAll(".annotation-text")].map(text => text.textContent),
    legend: [...chart.querySelectorAll(".legendtext")].map(text => text.textContent),
    xTicks: [...chart.querySelectorAll(".xtick text")].map(tick => tick.textContent),
  };
})
"""
# The middle of the last tick in the strip of ``chart-iteration``.
LAST_TICK = """(() => {
  const chart = document.querySelector("#chart-iteration");
  chart.scrollIntoView({block: "center"});
  const strip = chart.querySelector(".xy3") ? ".xy3" : ".xy2";
  const box = [...chart.querySelectorAll(`${strip} .points path`)].at(-1).getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
})()"""


@pytest.mark.parametrize("crashes", [3, 100])
def test_faults_are_drawn_below_the_curves(
    page: Page, tmp_path: Path, crashes: int, watch: Watched
) -> None:
    """The run has three faults (one lasts, one restarts the server) or a hundred crashed workers."""
    write_run = writer_of_runs(tmp_path / "runs")
    few = [
        fault("freeze", "worker-3", iteration=40),
        fault("stop-network", "worker-7", iteration=60, rule=1),
        fault("stop-network", "worker-7", iteration=110, rule=1, end=True),
        fault("kill", "server", iteration=120, rule=2),
        fault("kill", "server", iteration=120, rule=2, end=True),
    ]
    many = [fault("freeze", f"worker-{i}", iteration=10 + 15 * i // 10) for i in range(100)]
    written = [
        write_run("asgd", workers=200),
        write_run("adacomp-0.01", workers=200, faults=few if crashes == 3 else many),
    ]
    runs = [RecordedRun.load(run) for run in written]
    look(page)
    page.goto("about:blank")
    page.goto(write_report(runs, tmp_path / "report.html").as_uri())
    for shown in page.evaluate(FAULTS):
        # An immediate restart is a bar too, but one without length.
        assert shown["ticks"] == crashes
        assert shown["bars"] == (1 if crashes == 3 else 0)
        assert shown["living"] == (0 if crashes == 3 else 1)
        assert shown["kills"] == (["server killed"] if crashes == 3 else [])
        kinds = ["freeze", "kill", "stop-network"] if crashes == 3 else ["freeze"]
        assert shown["legend"] == ["asgd", "adacomp-0.01", *kinds]
        assert len(shown["xTicks"]) >= 3
    table = page.evaluate("document.querySelectorAll('#struck tbody tr').length")
    assert table == (3 if crashes == 3 else 1)
    point_at(page, LAST_TICK, "worker-7" if crashes == 3 else "worker-99")
    assert len(page.screenshot(path=tmp_path / "report.png", full_page=True)) > 50_000
    assert watch.complaints == []


def test_another_measure_is_drawn_named_and_turned(
    page: Page, tmp_path: Path, watch: Watched
) -> None:
    write_run = writer_of_runs(tmp_path)
    runs = [
        RecordedRun.load(write_run("asgd", **falling(40, 0.0))),
        RecordedRun.load(write_run("fast", **falling(10, 4.0))),
    ]
    page.goto(write_report(runs, tmp_path / "report.html").as_uri())
    words = page.evaluate("document.body.innerText")
    assert "Perplexity versus ingress" in words and "Further down and further left" in words
    assert "ccuracy" not in words
    for chart in ("chart-ingress", "chart-iteration"):
        assert "test perplexity (lower is better)" in charts(page)[chart]["titles"]
    page.fill("input[name=goal]", "10")
    assert page.evaluate(REACHED) == expected(runs, 10, "wire")
    assert watch.complaints == []
