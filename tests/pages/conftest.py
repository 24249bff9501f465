"""A real ``testbed serve`` over a folder of experiments that a page can start."""

import contextlib
import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import psutil
import pytest

EXPERIMENT = """\
name: {name}
dataset: digits
model: mlp
engine: simulation
clock: virtual
training: {{updates: {updates}}}
{algorithms}
devices: {{workers: 4}}
network: {{uplink: 10mbit}}
evaluation: {{every: 20, images: 1000}}
"""
ASGD = "algorithms: [asgd]"
# A simulation makes 25 updates a second at most: it leaves the processors to others, and the pages that
# show it have as many evaluations to draw as those of a run in namespaces.
LONG = "plugins: [slow.py]\nalgorithms: ['slow:Slow']"
SLOW = """\
import time

from testbed.algorithms.asgd import Asgd, WholeGradient


class SlowWorker(WholeGradient):
    def compress(self, gradient):
        time.sleep(0.04)
        return super().compress(gradient)


class Slow(Asgd):
    @staticmethod
    def worker(options, layout, conditions):
        return SlowWorker()
"""
PACED = """\
name: paced
dataset: digits
model: mlp
clock: wall
training: {updates: 1000000}
algorithms: [asgd]
devices: {workers: 4}
waiting: {distribution: constant, mean: 200ms}
evaluation: {every: 20, images: 1000}
"""
"""A run in namespaces: 20 updates per second on any host."""
ENDLESS = 1_000_000
"""Updates of a run that a test ends."""


@dataclass(frozen=True)
class Site:
    """Served pages.

    Attributes:
        folder: of the experiments; the runs are in ``runs`` there.
        base: their address, without the token.
        token: it.
    """

    folder: Path
    base: str
    token: str

    @property
    def address(self) -> str:
        """The address that is printed."""
        return f"{self.base}?token={self.token}"


def _write(path: Path, name: str, updates: int, algorithms: str = ASGD) -> None:
    path.write_text(EXPERIMENT.format(name=name, updates=updates, algorithms=algorithms))


def _is_plan(process: psutil.Process) -> bool:
    try:
        return "plan" in process.cmdline()
    except psutil.Error:  # a run that has ended, which no page has asked about since
        return False


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    _write(folder / "tiny.yaml", "tiny", 40)
    for name in ("long", "other"):
        _write(folder / f"{name}.yaml", name, ENDLESS, LONG)
    (folder / "slow.py").write_text(SLOW)
    (folder / "paced.yaml").write_text(PACED)
    _write(folder / "<b>bold.yaml", "bold", 2)
    _write(folder / " two  spaces.yaml", "spaces", 2)
    (folder / os.fsdecode(b"no-utf-8-\xff.yaml")).write_text("algorithms: [asgd]\n")
    (folder / "sweep.yaml").write_text("algorithms: [asgd]\nsweep: {seeds: 2}\n")
    (folder / "no-sweep.yaml").write_text("algorithms: [asgd]\nsweep: null\n")
    (folder / "notes.yaml").write_text("milk: 1\n")
    command = [sys.executable, "-m", "testbed", "serve", "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with (
        (folder / "errors").open("w") as errors,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        base, _, token = process.stdout.readline().split()[-1].partition("?token=")
        yield Site(folder, base, token)
        # A page that is open, whose events do not end by themselves, and a plan that does not, either.
        cookie = {"Cookie": f"testbed-{urlsplit(base).port}={token}"}
        events = urlopen(Request(f"{base}events", headers=cookie), timeout=60)
        planned = http.client.HTTPConnection(urlsplit(base).netloc, timeout=60)
        planned.request("GET", "/plan?file=tiny.yaml", headers=cookie)
        plans: list[psutil.Process] = []
        while not plans:
            # A test that failed has not ended the runs that it started.
            left = psutil.Process(process.pid).children()
            plans = [one for one in left if _is_plan(one)]
        plans[0].suspend()
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(30) == 0
            assert (folder / "errors").read_text() == ""
        finally:
            events.close()
            planned.close()
            with contextlib.suppress(psutil.NoSuchProcess):
                plans[0].kill()
            for run in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    run.terminate()
            psutil.wait_procs(left, 30)
