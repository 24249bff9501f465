"""``testbed replay``, and the options that serve metrics: ``--metrics-port`` and its companions."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.results import WHICH, RunsRoot, all_runs
from testbed.errors import SpecError

if TYPE_CHECKING:
    from testbed.metrics.exporter import Exporter

DEFAULT_PORT = 9464
"""The default port of ``testbed replay``."""

MetricsPort = Annotated[
    int | None,
    typer.Option(
        metavar="PORT",
        help="Serve Prometheus metrics of the runs at http://127.0.0.1:PORT/metrics; 0 for any free "
        "port, which is printed. Off by default.",
    ),
]
MetricsLinger = Annotated[
    str | None,
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
    """The settings by which a command serves metrics.

    Attributes:
        port: the port to serve on; None: metrics are not served.
        seconds: the time for which the final values stay available.
        workers: True if each worker has series of its own.
    """

    port: int | None
    seconds: float
    workers: bool

    @classmethod
    def of(cls, port: int | None, linger: str | None, workers: bool) -> "Serving":
        """Make the settings from the options of a command.

        Raises:
            SpecError: the duration is invalid, or an option is given without ``--metrics-port``.
        """
        seconds = 0.0 if linger is None else duration(linger)
        if port is None:
            asked = (("--metrics-linger", linger is not None), ("--metrics-workers", workers))
            for option, given in asked:
                if given:
                    raise SpecError(
                        f"{option}: no metrics are served without --metrics-port; give it as well, "
                        "e.g. --metrics-port 9464"
                    )
        return cls(port, seconds, workers)

    @contextlib.contextmanager
    def exporter(self) -> "Iterator[Exporter | None]":
        """Serve metrics during the body, and print their address on stderr; yield None if they are off.

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
        """Keep the final values available for ``seconds``."""
        if exporter is not None and self.seconds:
            print(
                f"metrics: final values at {exporter.url} for {self.seconds:g} s (Ctrl-C to end)",
                file=sys.stderr,
                flush=True,
            )
            exporter.linger(self.seconds)


def replay(
    run: Annotated[list[str], typer.Argument(help=WHICH)],
    *,
    runs: RunsRoot = Path("runs"),
    speed: Annotated[
        float,
        typer.Option(
            min=0, metavar="X", help="So many seconds of training in one; 0: the end at once."
        ),
    ] = 1.0,
    metrics_port: Annotated[
        int, typer.Option(metavar="PORT", help="Where to serve, on 127.0.0.1; 0 for any free port.")
    ] = DEFAULT_PORT,
    metrics_linger: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="Keep the final values up for so long; default: until Ctrl-C."
        ),
    ] = None,
    metrics_workers: MetricsWorkers = False,
) -> None:
    """Serve the metrics of finished runs again, as they were while they trained.

    Several runs, or all of an execution, begin together. Metrics that a run directory does not record
    (memory, processor time, what each device did) are missing.
    """
    from testbed.metrics.player import play
    from testbed.metrics.replay import replayed

    linger = None if metrics_linger is None else duration(metrics_linger)
    found = replayed(all_runs(run, runs))
    with Serving(metrics_port, 0, metrics_workers).exporter() as exporter:
        assert exporter is not None
        for one in found:
            exporter.add(one)
        caught = play(found, speed)
        if caught is not None:
            raise typer.Exit(128 + caught)
        print("metrics: final values", file=sys.stderr, flush=True)
        exporter.linger(linger)


def duration(text: str) -> float:
    """Return the value of ``--metrics-linger`` in seconds.

    Raises:
        SpecError: it is not a duration.
    """
    from testbed.experiment.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise SpecError(f"--metrics-linger: {error}") from error
