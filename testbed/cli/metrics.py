"""``--metrics-port`` and what belongs to it, and ``testbed replay``."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.errors import SpecError

if TYPE_CHECKING:
    from testbed.metrics.exporter import Exporter

DEFAULT_PORT = 9464
"""Where ``testbed replay`` serves."""

MetricsPort = Annotated[
    int | None,
    typer.Option(
        metavar="PORT",
        help="Serve Prometheus metrics of the runs at http://127.0.0.1:PORT/metrics; 0 for any free "
        "port, which is printed. Off by default.",
    ),
]
MetricsLinger = Annotated[
    str,
    typer.Option(
        metavar="DURATION",
        help="Keep the final values up for so long, e.g. 30s; Ctrl-C ends that early.",
    ),
]
MetricsWorkers = Annotated[
    bool, typer.Option("--metrics-workers", help="Export series for each worker as well.")
]


@dataclass(frozen=True, slots=True)
class Serving:
    """Whether and how metrics are served.

    Attributes:
        port: None for not at all.
        seconds: that the final values stay up.
        workers: whether each worker has series of its own.
    """

    port: int | None
    seconds: float
    workers: bool

    @classmethod
    def of(cls, port: int | None, linger: str, workers: bool) -> "Serving":
        """From the options of a command.

        Raises:
            SpecError: the duration is none.
        """
        return cls(port, duration(linger), workers)

    @contextlib.contextmanager
    def exporter(self) -> "Iterator[Exporter | None]":
        """Serve in the body, and say where on stderr; None if nobody asked for it.

        Raises:
            SpecError: the port is taken.
        """
        if self.port is None:
            yield None
            return
        from testbed.metrics.exporter import Exporter

        exporter = Exporter(self.port, self.workers)
        print(f"metrics: {exporter.url}", file=sys.stderr, flush=True)
        try:
            yield exporter
        finally:
            exporter.close()

    def linger(self, exporter: "Exporter | None") -> None:
        """Keep the final values up."""
        if exporter is not None and self.seconds:
            print(
                f"metrics: final values at {exporter.url} for {self.seconds:g} s (Ctrl-C to end)",
                file=sys.stderr,
                flush=True,
            )
            exporter.linger(self.seconds)


def duration(text: str) -> float:
    """Seconds of an option's value.

    Raises:
        SpecError: it is no duration.
    """
    from testbed.experiment.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise SpecError(f"--metrics-linger: {error}") from error
