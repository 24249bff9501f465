"""The pages in a real Chromium: runs are started, watched, compared and stopped."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.chromium import chromium, chromium_needed, look, watched
from tests.pages.conftest import Site

pytestmark = [chromium_needed, pytest.mark.exercises("Chromium")]
SECONDS = 120.0


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    """The page of all runs; nothing may be complained of."""
    complaints: list[str] = []
    context = browser.new_context()
    page = watched(context, complaints, [])
    look(page)
    page.goto(site.address)
    assert "token" not in page.url
    yield page
    context.close()
    assert complaints == []


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def start(page: Page, site: Site, file: str) -> None:
    """Start an experiment as the form on the page of its plan does, without making the plan."""
    origin = {"Origin": site.base.rstrip("/")}
    answer = page.request.post(f"{site.base}start", form={"file": file}, headers=origin)
    assert answer.ok, answer.text()
    page.wait_for_selector(f"[data-live=started] summary:has-text('{file}')")


def cell(page: Page, heading: str, row: int = 0) -> str:
    """Return a cell of the table of results."""
    return page.evaluate(  # type: ignore[no-any-return]
        """([heading, row]) => {
          const table = document.querySelector("[data-live=Results] table");
          const place = [...table.querySelectorAll("thead th")]
            .findIndex((one) => one.innerText.replaceAll("\\u00a0", " ") === heading);
          return table.querySelectorAll("tbody tr")[row].children[place].innerText;
        }""",
        [heading, row],
    )


def fits_a_phone(page: Page, folder: Path) -> bool:
    """Make the window narrow; return True if the page is not wider."""
    look(page, width=390)
    page.screenshot(path=folder / "phone.png", full_page=True)
    return bool(page.evaluate("document.documentElement.scrollWidth") <= 390)


def process_of(run: Path) -> int:
    return int(json.loads((run / "manifest.json").read_text())["pid"])


@pytest.mark.real
@pytest.mark.exercises("namespaces")
def test_a_run_is_started_watched_and_stopped(page: Page, site: Site, tmp_path: Path) -> None:
    page.select_option("select[name=file]", "paced.yaml")
    page.fill("textarea", "seed=7")
    page.click("text=Show the plan")
    assert "1,000,000" in page.inner_text("pre")
    assert fits_a_phone(page, tmp_path)
    look(page)
    page.click("text=Start it")
    page.click("[data-live=going] a")
    page.click("label:has(input[value=payload])")  # once it is evaluated
    seen: list[int] = []
    points: list[int] = []

    def grown() -> bool:
        updates = int(cell(page, "updates").replace(",", ""))
        if updates not in seen:
            seen.append(updates)
        points.append(page.evaluate("document.querySelectorAll('#chart-iteration .point').length"))
        return len(seen) >= 4 and points[-1] > points[0]

    until(grown)
    assert seen == sorted(seen)
    assert page.is_checked("input[value=payload]")
    assert cell(page, "state") == "running"
    page.evaluate("window.loaded = 'once'")
    page.click("text=/Stop paced/")
    page.wait_for_selector("[data-live=Results] .state.interrupted")
    page.wait_for_selector("[data-live=stop]:not(:has(button))", state="attached")
    assert page.evaluate("window.loaded") == "once"
    # It shows what the report shows that the run has written.
    until(lambda: any((site.folder / "runs").glob("paced/*-7/report.html")))
    [written] = (site.folder / "runs").glob("paced/*-7/report.html")
    live = page.inner_text("[data-live=Results]"), page.inner_text("#runs ~ article")
    page.goto(written.as_uri())
    assert live == (page.inner_text("[data-live=Results]"), page.inner_text("#runs ~ article"))


def test_two_runs_are_watched_compared_stopped_and_killed(page: Page, site: Site) -> None:
    for file in ("long.yaml", "other.yaml"):
        start(page, site, file)
    page.wait_for_selector("[data-live=going] tbody tr:nth-child(2)")
    # What is ticked stays so while the table changes.
    for name in ("long", "other"):
        page.check(f"input[name=run][value^='{name}/']")
    before = page.inner_text("[data-live=going]")
    until(lambda: page.inner_text("[data-live=going]") != before)
    page.click("text=Compare the ticked runs")
    assert page.locator("[data-live=Results] tbody tr").count() == 2
    first = [cell(page, "updates", row) for row in (0, 1)]
    until(lambda: all(cell(page, "updates", row) != first[row] for row in (0, 1)))
    assert [cell(page, "state", row) for row in (0, 1)] == ["running", "running"]
    page.click("text=/Stop long/")
    page.wait_for_selector("[data-live=Results] .state.interrupted")
    [manifest] = (site.folder / "runs").glob("other/*/*/manifest.json")
    killed = manifest.parent
    os.kill(process_of(killed), signal.SIGKILL)
    page.goto(f"{site.base}report?run={killed.relative_to(site.folder / 'runs')}")
    page.wait_for_selector("[data-live=Results] .state.interrupted")
    page.goto(site.base)
    page.wait_for_selector("text=No run is running")
    page.wait_for_selector("summary:has-text('long.yaml: ended with status 143')")
    page.wait_for_selector("summary:has-text('other.yaml: ended with status -9')")


def test_the_keyboard_is_enough(page: Page, site: Site) -> None:
    def tab_to(wanted: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("(wanted) => document.activeElement.matches(wanted)", wanted):
                return
        raise AssertionError(f"the keyboard does not reach {wanted}")

    tab_to("select")
    page.keyboard.type("tiny")
    tab_to("textarea")
    page.keyboard.type("seed=9")
    tab_to("button")
    page.keyboard.press("Enter")
    page.wait_for_url("**/plan?*")
    assert "tiny.yaml" in page.inner_text("h1")
    tab_to("button")
    page.keyboard.press("Enter")
    page.wait_for_selector("summary:has-text('tiny.yaml: ended with status 0')")
    tab_to("input[name=run][value^='tiny/'][value*='-9/']")
    page.keyboard.press("Space")
    tab_to("button")
    page.keyboard.press("Enter")
    page.wait_for_url("**/report?*")
    page.wait_for_selector("[data-live=Results] .state.completed")
    assert cell(page, "updates") == "40"


def test_the_pages_fit_a_phone(page: Page, site: Site, tmp_path: Path) -> None:
    [run, *_] = (site.folder / "runs").glob("tiny/*")
    # A plan takes seconds: the one that is looked at is made above.
    for place in ("", f"report?run=tiny/{run.name}"):
        page.goto(site.base + place)
        assert fits_a_phone(page, tmp_path), place


def test_a_browser_has_any_number_of_tabs(page: Page, site: Site) -> None:
    def show(tab: Page, state: str) -> None:
        tab.evaluate(
            """(value) => {
              Object.defineProperty(document, "visibilityState", {value, configurable: true});
              document.dispatchEvent(new Event("visibilitychange"));
            }""",
            state,
        )

    for _ in range(7):  # a browser has six connections to a server
        show(page.context.pages[-1], "hidden")  # as tabs are of which another one is in front
        page.context.new_page().goto(site.base, timeout=20_000)
    page.evaluate("document.querySelector('[data-live=all]').textContent = 'old'")
    show(page, "visible")
    page.wait_for_selector("[data-live=all]:not(:has-text('old'))")


def test_a_page_says_that_its_server_is_gone(browser: Browser, site: Site) -> None:
    page = watched(browser.new_context(), [], [])
    page.route("**/events*", lambda route: route.abort())
    page.goto(site.address)
    page.wait_for_selector("[role=status]:has-text('does not answer')")
    page.context.close()
