"""A headless Chromium, driven by Playwright: pages, and what they complain of."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, sync_playwright

chromium_needed = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="chromium is not installed"
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Debian's Chromium, and end it after the block."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield browser
        browser.close()


def watched(context: BrowserContext, complaints: list[str], requests: list[str]) -> Page:
    """Return a new page whose console, errors and requests are written down."""
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.on("requestfailed", lambda request: complaints.extend(_failure(request)))
    return page


def look(page: Page, *, dark: bool = False, width: int = 1000) -> None:
    """Set the preferred colour scheme and the width of the window."""
    page.emulate_media(color_scheme="dark" if dark else "light")
    page.set_viewport_size({"width": width, "height": 900})
    page.evaluate("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")


def _failure(request: Request) -> list[str]:
    """Return what went wrong with a request; nothing if its reader has left the page."""
    failure = request.failure or ""
    return [] if "ERR_ABORTED" in failure else [f"{request.url}: {failure}"]
