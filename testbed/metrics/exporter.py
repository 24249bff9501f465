"""Metrics over HTTP, on the host's loopback address only, computed only on request.

prometheus-client serves each request in a thread of its own. The orchestrator's thread changes a run's
state and these threads read it, each under the run's lock.
"""

import errno
import math
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from testbed.channel import readable
from testbed.errors import SpecError
from testbed.metrics.device_metrics import DEVICES, WORKERS
from testbed.metrics.metric import Metric
from testbed.metrics.state import BUCKETS, RunState, Staleness
from testbed.metrics.training_metrics import TRAINING
from testbed.runs.ending import signal_in, signals

ADDRESS = "127.0.0.1"
COMMON = ("run", "algorithm")
"""Labels of every metric."""
METRICS = TRAINING + DEVICES
"""All metrics but those of ``WORKERS``, which are exported on request and have a series per device."""
_FAMILIES: dict[str, Callable[..., Family]] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "histogram": HistogramMetricFamily,
    "summary": SummaryMetricFamily,
}


class MetricsSource(Protocol):
    """One run, live or replayed.

    Attributes:
        lock: must be held to change or read its state.
    """

    @property
    def lock(self) -> threading.Lock: ...

    def read(self) -> RunState:
        """Return the present state; the caller holds the lock."""
        ...


@dataclass(eq=False)
class RunsCollector(Collector):
    """Collects the metrics of all runs of an execution.

    Attributes:
        workers: True if each worker has series of its own.
        sources: the runs, in the order in which they began.
    """

    workers: bool = False
    sources: list[MetricsSource] = field(default_factory=list)

    def collect(self) -> Iterable[Family]:
        """Return the present metrics; a metric without a sample is left out."""
        metrics = METRICS + (WORKERS if self.workers else ())
        families = [_family(metric) for metric in metrics]
        for source in list(self.sources):
            with source.lock:
                state = source.read()
                for metric, family in zip(metrics, families, strict=True):
                    for own, value in metric.read(state):
                        _add(family, (state.run, state.algorithm, *own), value)
        return [family for family in families if family.samples]

    def describe(self) -> Iterable[Family]:
        """Return the metric families without samples."""
        return map(_family, METRICS + (WORKERS if self.workers else ()))


def _family(metric: Metric) -> Family:
    name = metric.name.removesuffix("_total")
    return _FAMILIES[metric.kind](name, metric.meaning, labels=(*COMMON, *metric.labels))


def _add(family: Any, labels: tuple[str, ...], value: Any) -> None:
    if isinstance(value, Staleness):
        below = value.counts.cumsum().tolist()
        bounds = [*map(floatToGoString, BUCKETS), "+Inf"]
        family.add_metric(labels, list(zip(bounds, below, strict=True)), value.sum)
    elif isinstance(value, tuple):
        total, count = value
        family.add_metric(labels, count, total)
    else:
        family.add_metric(labels, float(value))


class Exporter:
    """Serves the metrics of all runs that are added, on its port, until it is closed."""

    def __init__(self, port: int, workers: bool = False) -> None:
        """Serve the metrics from now on.

        Args:
            port: 0 for any free port.
            workers: True to give each worker series of its own.

        Raises:
            SpecError: the port is taken, or may not be used.
        """
        self._runs = RunsCollector(workers)
        registry = CollectorRegistry()
        registry.register(self._runs)
        try:
            self._server, self._thread = start_http_server(port, ADDRESS, registry)
            self._server.set_app(_with_head(make_wsgi_app(registry)))
        except (OSError, OverflowError) as error:
            raise SpecError(_explain(port, error)) from error
        self.port: int = self._server.server_address[1]

    @property
    def url(self) -> str:
        """The address for Prometheus or a browser."""
        return f"http://{ADDRESS}:{self.port}/metrics"

    def add(self, source: MetricsSource) -> None:
        """Export a run from now on."""
        self._runs.sources.append(source)

    def linger(self, seconds: float | None) -> None:
        """Serve for some more seconds (None: without end), or until SIGINT, SIGTERM or SIGHUP."""
        if seconds == 0:
            return
        with signals() as wake_up:
            until = math.inf if seconds is None else time.monotonic() + seconds
            while (left := until - time.monotonic()) > 0 and signal_in(wake_up) is None:
                readable(wake_up, None if seconds is None else left)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _with_head(get: Callable[..., list[bytes]]) -> Callable[..., list[bytes]]:
    """Return a WSGI application that also answers HEAD, which prometheus-client's refuses."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        if environ["REQUEST_METHOD"] != "HEAD":
            return get(environ, start_response)
        begun: list[Any] = []
        body = get({**environ, "REQUEST_METHOD": "GET"}, lambda *begin: begun.extend(begin))
        status, headers = begun
        start_response(status, [*headers, ("Content-Length", str(sum(map(len, body))))])
        return []

    return application


def _explain(port: int, error: OSError | OverflowError) -> str:
    if isinstance(error, socket.gaierror | OverflowError):
        return (
            f"--metrics-port {port}: there is no such port; use one from 1 to 65535, or 0 for any"
        )
    if error.errno == errno.EADDRINUSE:
        return (
            f"--metrics-port {port}: the port is in use already, perhaps by another run; use another, "
            "or 0 for any that is free"
        )
    return f"--metrics-port {port} cannot be used ({error.strerror}); use another, or 0 for any"


def table() -> str:
    """Return the Markdown table of all metrics, as in ``docs/metrics.md``."""
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for metric in (*METRICS, *WORKERS):
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.meaning} |")
    bounds = ", ".join(map(str, BUCKETS))
    rows.append("")
    rows.append(f"Buckets of `testbed_update_staleness`: {bounds}, +Inf.")
    return "\n".join(rows)
