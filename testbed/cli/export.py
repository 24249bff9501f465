"""``testbed export``: recorded runs for TensorBoard, MLflow, Weights & Biases, or as CSV."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.options import WHICH, AsJson, RunsRoot
from testbed.export import Tool
from testbed.telemetry.json_text import json_text
from testbed.untrusted_text import printable

Out = Annotated[
    str | None,
    typer.Option(
        metavar="WHERE",
        help="A folder; for MLflow the address of a server, too, by default MLFLOW_TRACKING_URI. By "
        "default a folder in exports/.",
    ),
]


def export(
    run: Annotated[list[str], typer.Argument(help=WHICH)],
    *,
    to: Annotated[Tool, typer.Option(help="The tool that gets the runs, or csv for tables.")],
    out: Out = None,
    runs: RunsRoot = Path("runs"),
    figures: Annotated[
        bool, typer.Option("--figures/--no-figures", help="Export each run's figures, too.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Export runs to another tool: options, results, curves by update and by byte, figures.

    A run that was exported before and has not changed is left as it is; one that has grown is replaced.
    """
    from testbed.cli.shown_runs import all_runs
    from testbed.export.exporting import destination
    from testbed.export.exporting import export as export_runs

    # First what is missing for it, before runs are read.
    place = destination(to, out)
    found = all_runs(run, runs)
    exported = []
    for one in export_runs(found, place, figures and to != "csv"):
        exported.append(one)
        if not as_json:
            typer.echo(
                printable(f"{one.run}: {one.what}" + (f", {one.where}" if one.where else ""))
            )
    if as_json:
        typer.echo(json_text([asdict(one) for one in exported], indent=2))
    else:
        typer.echo(printable(place.hint))
