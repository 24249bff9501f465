"""``--metrics-port`` and what belongs to it, and ``testbed replay``."""

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
    def of(cls, port: int | None, linger: str | None, workers: bool) -> "Serving":
        """From the options of a command.

        Raises:
            SpecError: the duration is none, or an option says how to serve what is not served.
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

    Several runs, or all of an execution, begin together. What a run directory does not tell (memory,
    processor time, what each device did) is not there.
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
    """Seconds of an option's value.

    Raises:
        SpecError: it is no duration.
    """
    from testbed.experiment.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise SpecError(f"--metrics-linger: {error}") from error
