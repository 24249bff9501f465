"""The arguments and options that several commands have."""

import os
from pathlib import Path
from typing import Annotated

import typer

WHICH = (
    "A run or an execution: its path; experiment/time-seed, with /algorithm after it for one run; "
    "an experiment's name for its newest execution; or 'latest'."
)


def run_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the experiments, executions or runs, one level below what is written already.

    Only names of folders are looked at: a shell waits for this after each Tab.
    """
    above, slash, begin = incomplete.rpartition("/")
    root = Path(context.params.get("runs") or "runs")
    try:
        with os.scandir(root / above) as entries:
            found = sorted(
                entry.name
                for entry in entries
                if entry.name.startswith(begin) and entry.name != "figures" and entry.is_dir()
            )
    except OSError:  # there are no runs here
        return []
    return [f"{above}{slash}{name}" for name in found]


NAMED = typer.Argument(help=WHICH, autocompletion=run_names)
AnyRun = Annotated[str, NAMED]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Hosts = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|ray",
        help="This host and those of a file, where `testbed agent` waits; or ray for the nodes of the "
        "Ray cluster that this host is in, ray:ADDRESS for another.",
    ),
]
Report = Annotated[
    bool,
    typer.Option(
        "--report/--no-report",
        help="Draw the figures and write the report at the end; `testbed report` does it at any time.",
    ),
]
RunsRoot = Annotated[
    Path, typer.Option("--runs", metavar="DIR", help="The folder that holds the runs.")
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        metavar="PORT",
        help="Serve Prometheus metrics of the runs at http://127.0.0.1:PORT/metrics; 0 takes any "
        "free port and prints it. Off by default.",
    ),
]
MetricsLinger = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Serve the final values for this long after the last run, e.g. 30s; Ctrl-C ends it early.",
    ),
]
MetricsWorkers = Annotated[
    bool, typer.Option("--metrics-workers", help="Export series for each worker as well.")
]
