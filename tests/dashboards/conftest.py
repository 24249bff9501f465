"""A real experiment, scraped by a real Prometheus while it runs; once for all tests of this folder.

It trains two algorithms on four workers each; while the second trains, one of its workers is killed.
"""

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.dashboards.server import Prometheus, free_port, prometheus
from tests.end_to_end.conftest import CommandLine, until
from tests.needs import why_no_namespaces

ALGORITHMS = ("asgd", "adacomp-0.1")
CRASHED = ALGORITHMS[1]
UPDATES = 240
DEADLINE = 240.0
"""Seconds that the experiment may take on a busy machine; half a minute is usual."""
SPEC: dict[str, Any] = {
    "name": "watched",
    "dataset": "digits",
    "model": "mlp",
    "training": {"updates": UPDATES},
    "algorithms": ["asgd", {"name": "adacomp", "ratio": 0.1}],
    "devices": {"workers": 4},
    "network": {"uplink": "100mbit", "downlink": "200mbit"},
    "waiting": {"distribution": "exponential", "mean": "50ms"},
    "evaluation": {"every": 20},
}


@dataclass(frozen=True)
class Watched:
    """The measured experiment, and the Prometheus that scraped it."""

    prometheus: Prometheus
    run: str
    """The label ``run`` that both algorithms share."""
    summaries: dict[str, dict[str, Any]]
    """``summary.json`` of each algorithm."""
    start: float
    end: float
    """Host's clock: the experiment lies between them, and at ``end`` its final values are scraped."""
    crash: float
    """The moment at which a worker of ``CRASHED`` was killed."""

    @property
    def seconds(self) -> float:
        return self.end - self.start


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """The experiment's completed runs, while their exporter still serves."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus (Debian package) is not installed")
    if unable := why_no_namespaces():
        pytest.skip(f"no namespaces: {unable}")
    folder = tmp_path_factory.mktemp("watched")
    port = free_port()
    line = CommandLine(folder)
    try:
        with prometheus(folder, port) as server:
            start = time.time()
            options = ("--metrics-port", str(port), "--metrics-workers", "--metrics-linger", "60s")
            started = line.start_run(SPEC, *options)

            def value(query: str) -> dict[str, float]:
                """Return a query's values by algorithm; fail if the command has ended."""
                assert started.process.poll() is None, started.said
                return {one["algorithm"]: v for one, v in server.at(query, time.time())}

            def well_under_way() -> bool:
                return value("testbed_updates_total").get(CRASHED, 0) >= UPDATES / 4

            def scraped() -> bool:
                return set(value('testbed_run_phase{phase="completed"} == 1')) == set(ALGORITHMS)

            until(well_under_way, "a quarter of the second run", DEADLINE)
            started.nodes()["worker-3"].kill()
            crash = time.time()
            until(scraped, "the final values were scraped", DEADLINE)
            time.sleep(2)  # rules are evaluated once a second, like scrapes
            paths = [
                one for name in ALGORITHMS for one in started.out.glob(f"*/*/{name}/summary.json")
            ]
            summaries = {path.parent.name: json.loads(path.read_bytes()) for path in paths}
            run = str(paths[0].parent.parent.relative_to(started.out))
            yield Watched(server, run, summaries, start, time.time(), crash)
    finally:
        line.close()
