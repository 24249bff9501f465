"""``testbed serve``: the runs of this host in a browser, while they go on."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.options import RunsRoot

Experiments = Annotated[
    Path,
    typer.Option(metavar="DIR", help="The folder whose experiment files can be started."),
]
Host = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        help="The address to listen at. Beyond this host the pages are not encrypted: whoever reads "
        "the packets can start experiments.",
    ),
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any free one.")]


def serve(
    runs: RunsRoot = Path("runs"),
    experiments: Experiments = Path(),
    host: Host = "127.0.0.1",
    port: Port = 8800,
) -> None:
    """Serve pages of the runs: watch them grow, compare them, start and stop them; Ctrl-C ends it.

    Who knows the address that is printed, in which there is a token, can do all that. Runs that were
    started from a page go on when this ends.
    """
    from testbed.pages import serving

    with contextlib.suppress(KeyboardInterrupt):
        serving.serve(runs, experiments, host, port, lambda at: typer.echo(f"pages: {at}"))
