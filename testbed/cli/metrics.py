"""``testbed replay``, and serving metrics while a command runs: ``--metrics-port``."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.options import NAMED, MetricsWorkers, RunsRoot
from testbed.display.standard_streams import tell
from testbed.errors import SpecError

if TYPE_CHECKING:
    from testbed.metrics.exporter import Exporter

DEFAULT_PORT = 9464
"""The default port of ``testbed replay``."""


@dataclass(frozen=True, slots=True)
class MetricsOptions:
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
    def from_options(cls, port: int | None, linger: str | None, workers: bool) -> "MetricsOptions":
        """Make the settings from the options of a command.

        Raises:
            SpecError: the duration is invalid, or an option is given without ``--metrics-port``.
        """
        seconds = 0.0 if linger is None else _duration(linger)
        for option, given in (("linger", linger is not None), ("workers", workers)):
            if port is None and given:
                raise SpecError(
                    f"--metrics-{option}: metrics are served only with --metrics-port: give that "
                    f"option, too, e.g. --metrics-port {DEFAULT_PORT}"
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
        tell(f"metrics: {exporter.url}")
        try:
            yield exporter
        finally:
            exporter.close()

    def linger(self, exporter: "Exporter | None") -> None:
        """Keep the final values available for ``seconds``."""
        if exporter is not None and self.seconds:
            tell(f"metrics: final values at {exporter.url} for {self.seconds:g} s (Ctrl-C to end)")
            exporter.linger(self.seconds)


def replay(
    run: Annotated[list[str], NAMED],
    *,
    runs: RunsRoot = Path("runs"),
    speed: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="X",
            help="Seconds of training to replay per second; 0 shows the final values at once.",
        ),
    ] = 1.0,
    metrics_port: Annotated[
        int,
        typer.Option(
            metavar="PORT", help="The port of 127.0.0.1 to serve at; 0 takes any free port."
        ),
    ] = DEFAULT_PORT,
    metrics_linger: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Serve the final values for this long, e.g. 30s; by default until Ctrl-C.",
        ),
    ] = None,
    metrics_workers: MetricsWorkers = False,
) -> None:
    """Serve the metrics of finished runs again, as they were while they trained.

    Several runs, or all of an execution, begin together. Metrics that a run directory does not record
    (memory, processor time, what each device did) are missing.
    """
    from testbed.cli.shown_runs import all_runs
    from testbed.metrics.replay import play, replayed

    linger = None if metrics_linger is None else _duration(metrics_linger)
    found = replayed(all_runs(run, runs))
    with MetricsOptions(metrics_port, 0, metrics_workers).exporter() as exporter:
        assert exporter is not None
        for replayed_run in found:
            exporter.add(replayed_run)
        caught = play(found, speed)
        if caught is not None:
            raise typer.Exit(128 + caught)
        tell("metrics: final values")
        exporter.linger(linger)


def _duration(text: str) -> float:
    """Return the value of ``--metrics-linger`` in seconds.

    Raises:
        SpecError: it is not a duration.
    """
    from testbed.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise SpecError(f"--metrics-linger: {error}") from error
