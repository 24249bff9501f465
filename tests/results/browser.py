"""A headless Chromium, driven over a pipe: what a page shows, logs and does when clicked.

It speaks the DevTools protocol: JSON messages, a zero byte after each, on its descriptors 3 and 4.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SECONDS = 60.0
"""The longest wait for an answer."""

chromium_needed = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="chromium is not installed"
)


@dataclass
class Page:
    """One page of the browser."""

    reading: int
    writing: int
    session: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    _sent: int = 0
    _buffer: bytes = b""

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.writing, data) :]
        while True:
            answer = self._receive()
            if answer.get("id") == self._sent:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result

    def evaluate(self, script: str) -> Any:
        """Return the value of a script's last expression; a promise is awaited."""
        found = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def open(self, url: str) -> None:
        """Open an address and wait until everything is loaded."""
        self.events.clear()
        self.send("Page.navigate", url=url)
        deadline = time.monotonic() + SECONDS
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            assert time.monotonic() < deadline, f"{url} is not loaded"
            self.evaluate("new Promise(r => setTimeout(r, 50))")

    def look(self, *, dark: bool, width: int = 1000) -> None:
        """Set the preferred colour scheme and the width of the window."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.evaluate("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")

    def click(self, selector: str) -> None:
        """Click the middle of the first element that matches, as a mouse does."""
        x, y = self.evaluate(
            f"""(() => {{
              const element = document.querySelector({json.dumps(selector)});
              element.scrollIntoView({{block: "center"}});
              const box = element.getBoundingClientRect();
              return [box.x + box.width / 2, box.y + box.height / 2];
            }})()"""
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path) -> bytes:
        """Save the whole page as a PNG at ``path`` and return its bytes."""
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        picture = base64.b64decode(shot["data"])
        path.write_bytes(picture)
        return picture

    def complaints(self) -> list[str]:
        """Return all console output since the page was opened: messages, errors, refused requests."""
        found = []
        for event in self.events:
            told = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(told["exceptionDetails"]))
            elif event["method"] == "Runtime.consoleAPICalled":
                found.append(f"{told['type']}: {told['args']}")
            elif event["method"] == "Log.entryAdded" and told["entry"]["level"] != "verbose":
                found.append(str(told["entry"]["text"]))
        return found

    def requests(self) -> list[str]:
        """Return the addresses that the page has requested."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + SECONDS
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.reading], [], [], max(0.0, left))
            assert ready, f"Chromium has not answered within {SECONDS:g} s"
            data = os.read(self.reading, 2**20)
            assert data, "Chromium has ended"
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """Start Chromium with its own profile in ``folder``; kill its processes after the block."""
    # A socket's path has at most 107 characters, and a killed Chromium leaves files to remove.
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as short:
        yield from _browser(folder, {**os.environ, "TMPDIR": short})


def _browser(folder: Path, environment: dict[str, str]) -> Iterator[Page]:
    there, to_write = os.pipe()
    to_read, here = os.pipe()
    # Keep clear of 3 and 4, which they become in the browser.
    there, here = (_moved(one) for one in (there, here))
    arguments = [
        "chromium",
        *(
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--remote-debugging-pipe",
        ),
        *("--disable-background-networking", "--disable-sync", "--disable-component-update"),
        *("--disable-dev-shm-usage", f"--user-data-dir={folder / 'profile'}", "about:blank"),
    ]
    log = os.open(folder / "chromium.log", os.O_WRONLY | os.O_CREAT)
    process = os.posix_spawnp(
        "chromium",
        arguments,
        environment,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, there, 3),
            (os.POSIX_SPAWN_DUP2, here, 4),
            (os.POSIX_SPAWN_DUP2, log, 2),
        ],
        setsid=True,
    )
    for one in (there, here, log):
        os.close(one)
    page = Page(to_read, to_write)
    try:
        targets = page.send("Target.getTargets")["targetInfos"]
        blank = next(one["targetId"] for one in targets if one["type"] == "page")
        attached = page.send("Target.attachToTarget", targetId=blank, flatten=True)
        page.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        yield page
    finally:
        os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(to_write)
        os.close(to_read)


def _moved(descriptor: int) -> int:
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved
