"""A real Prometheus on loopback with the project's own configuration, and its answers."""

import http.client
import json
import math
import shutil
import socket
import subprocess
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

CONFIGURATION = Path(__file__).parents[2] / "dashboards" / "prometheus"
Labels = dict[str, str]
Series = tuple[Labels, list[tuple[float, float]]]


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    port: int

    def get(self, path: str, parameters: Mapping[str, str | float]) -> Any:
        """Return the data of its API's answer; a refused query is an error that says why."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
            response = connection.getresponse()
            if response.status == HTTPStatus.SERVICE_UNAVAILABLE:
                raise ConnectionRefusedError("Prometheus is starting")
            answer = json.loads(response.read())
        finally:
            connection.close()
        assert answer["status"] == "success", f"{answer['error']}: {parameters}"
        return answer["data"]

    def at(self, query: str, moment: float) -> list[tuple[Labels, float]]:
        """Return the value of each series at a moment."""
        result = self.get("query", {"query": query, "time": moment})["result"]
        return [(one["metric"], float(one["value"][1])) for one in result]

    def wait_for_scrape(self, name: str, since: float) -> None:
        """Wait for values of a metric that were scraped after a moment."""
        deadline = time.monotonic() + 60
        while not self.at(f"timestamp({name}) > {since}", time.time()):
            assert time.monotonic() < deadline, f"{name} was not scraped within 60 s"
            time.sleep(0.1)

    def over(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """Return the values of each series over time, without those that are not numbers."""
        data = self.get("query_range", {"query": query, "start": start, "end": end, "step": step})
        return [
            (
                one["metric"],
                [(t, float(v)) for t, v in one["values"] if not math.isnan(float(v))],
            )
            for one in data["result"]
        ]


def free_port() -> int:
    """Return a port of loopback on which nothing listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
    return port


@contextmanager
def prometheus(folder: Path, exporter: int) -> Iterator[Prometheus]:
    """Start Prometheus in ``folder``; it scrapes the exporter's port, not the configured one."""
    for path in CONFIGURATION.glob("*.yml"):
        shutil.copy(path, folder)
    configuration = folder / "prometheus.yml"
    text = configuration.read_text()
    assert "127.0.0.1:9464" in text
    configuration.write_text(text.replace("127.0.0.1:9464", f"127.0.0.1:{exporter}"))
    port = free_port()
    log = folder / "prometheus.log"
    with log.open("w") as written:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={configuration}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=written,
            stderr=written,
        )
    try:
        server = Prometheus(port)
        _wait_until(lambda: server.at("up", time.time()), process, log)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until(
    happened: Callable[[], object], process: subprocess.Popen[bytes], log: Path
) -> None:
    """Wait for the first scrape, successful or not, which comes seconds after it is ready."""
    deadline = time.monotonic() + 60
    while True:
        assert process.poll() is None, log.read_text()
        with suppress(OSError):
            if happened():
                return
        assert time.monotonic() < deadline, f"Prometheus scrapes nothing: {log.read_text()}"
        time.sleep(0.1)
