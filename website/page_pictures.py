"""``python -m website.page_pictures``: take the pictures of ``testbed serve`` in the documentation.

A server of a folder of its own, in which one experiment has ended and one is running, is opened in
Chromium; the pictures go into ``docs``. All of it runs in namespaces (unshare), where the host is
called ``edge`` and the folder ``/mnt/edge``: the pictures show nothing of the host that takes them.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

DOCS = Path(__file__).parents[1] / "docs"
WIDTH, COLOURS = 1200, 64
INSIDE = "--inside"
EXPERIMENT = """\
name: {name}
dataset: digits
model: mlp
engine: simulation
clock: virtual
training: {{updates: {updates}, learning_rate: 0.02}}
algorithms: [asgd, {{name: adacomp, ratio: 0.01}}]
devices: {{workers: 20}}
network: {{uplink: 5mbit}}
waiting: {{distribution: exponential, mean: 500ms}}
evaluation: {{every: {every}}}
faults: [{{who: {{number: 3}}, when: {{mean_time: 120s}}, how: freeze, lasting: 20s}}]
simulation: {{processors: 1}}
"""


def main() -> int:
    """Serve pages in a folder of their own, take the pictures, and end what was started."""
    if INSIDE not in sys.argv:
        apart = ["unshare", "--user", "--map-root-user", "--uts", "--mount"]
        here = [sys.executable, "-m", "website.page_pictures", INSIDE]
        return subprocess.run([*apart, *here], check=False).returncode
    socket.sethostname("edge")
    with tempfile.TemporaryDirectory() as name:
        subprocess.run(["mount", "--bind", name, "/mnt"], check=True)
        folder = Path("/mnt/edge")
        folder.mkdir()
        for file, updates, every in (("first", 2_000, 50), ("second", 1_000_000, 50)):
            text = EXPERIMENT.format(name=file, updates=updates, every=every)
            (folder / f"{file}.yaml").write_text(text)
        testbed = [sys.executable, "-m", "testbed"]
        subprocess.run([*testbed, "simulate", "first.yaml"], check=True, cwd=folder)
        server = subprocess.Popen(
            [*testbed, "serve", "--port", "0"],
            cwd=folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        run = subprocess.Popen([*testbed, "simulate", "second.yaml"], cwd=folder)
        try:
            assert server.stdout is not None
            _take(server.stdout.readline().split()[-1])
        finally:
            for process in (run, server):
                process.send_signal(signal.SIGINT)
                process.wait(60)
    return 0


def _take(address: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": 1200}, bypass_csp=True)
        page.set_default_timeout(120_000)
        page.goto(address)
        page.wait_for_selector("[data-live=going] .state.training")
        page.wait_for_selector("[data-live=all] .state.running")
        _save(page, "pages-list", 845)
        page.click("[data-live=going] a")
        # Until there is a curve to see.
        page.wait_for_function(
            "document.querySelectorAll('#chart-iteration .point').length > 40", timeout=120_000
        )
        _save(page, "pages-run", 1040)
        browser.close()


def _save(page: Page, name: str, height: int) -> None:
    """Save the upper part of a page with few colours, which makes a small file."""
    path = DOCS / f"{name}.png"
    page.screenshot(path=path, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})
    with Image.open(path) as taken:
        few = taken.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    print(f"{path.relative_to(DOCS.parent)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    sys.exit(main())
