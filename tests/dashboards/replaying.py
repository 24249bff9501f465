"""A real simulation, replayed to a real Prometheus."""

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed.metrics.exporter import Exporter
from testbed.metrics.replay import ReplayedRun, play
from testbed.results.reading.recorded_run import RecordedRun
from tests.dashboards.grafana import chosen, queries
from tests.dashboards.server import Prometheus, Series, free_port, prometheus
from tests.metrics.running import planned, simulated

SECONDS = 12.0
"""The duration of the replay."""


@dataclass(frozen=True)
class Replayed:
    """The replayed run, and the Prometheus that scraped it."""

    prometheus: Prometheus
    run: RecordedRun
    start: float
    end: float

    def ask(self, name: str) -> list[Series]:
        """Return what the panel or annotation of this name gets, with everything chosen."""
        [query] = [one for one in queries() if one.name == name]
        values = {"run": chosen(), "algorithm": chosen(), "measure": chosen(), "layer": "wire"}
        return query.ask(self.prometheus, values, self.start, self.end, step=1)


@contextlib.contextmanager
def replaying(folder: Path, workers: int, **sections: Any) -> Iterator[Replayed]:
    """Simulate a run, replay it, and yield it with the Prometheus that scraped it."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus (Debian package) is not installed")
    directory, _ = simulated(planned(workers, **sections), folder)
    run = RecordedRun.load(directory)
    replay = ReplayedRun(run)
    port = free_port()
    exporter = Exporter(port, workers=True)
    try:
        with prometheus(folder, port) as server:
            exporter.add(replay)
            start = time.time()
            # Without a scrape before the first fault, the query finds no change.
            server.wait_for_scrape("testbed_devices", start)
            assert play([replay], replay.duration / SECONDS) is None
            server.wait_for_scrape("testbed_devices", time.time())
            time.sleep(2)  # rules are evaluated once a second, as scrapes are made
            yield Replayed(server, run, start, time.time())
    finally:
        exporter.close()
