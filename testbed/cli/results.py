"""``testbed ls``, ``show``, ``compare`` and ``report``: read run directories and show their content.

Libraries are imported where a command runs: a shell that completes words waits for this module.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.options import NAMED, AnyRun, AsJson, RunsRoot
from testbed.errors import SpecError
from testbed.number_text import Measure
from testbed.untrusted_text import printable

Goal = Annotated[
    float | None,
    typer.Option(
        "--accuracy",
        "--goal",
        metavar="VALUE",
        help="The goal of 'ingress to reach': an accuracy in percent, or a value of the runs' own "
        "measure; by default the best that all of them reach, of accuracy at most 97.",
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        metavar="LABEL",
        help="The run that ratios refer to; by default asgd, or without asgd the first run.",
    ),
]


def ls(runs: RunsRoot = Path("runs"), as_json: AsJson = False) -> None:
    """List the runs, oldest first."""
    from testbed.cli import shown_runs
    from testbed.results.reading.finding import find, with_ends
    from testbed.results.reading.journals import NoRunError

    executions = [with_ends(execution) for execution in find(runs)]  # or it cannot be read
    if not runs.is_dir():
        raise NoRunError(
            f"there is no folder {runs}: name the folder of the runs by --runs, or start a run with "
            "`testbed run`"
        )
    if as_json:
        shown_runs.print_json([shown_runs.listed(execution) for execution in executions])
    elif not executions:
        typer.echo(f"there is no run in {runs} yet")
    else:
        shown_runs.print_list(executions)


def show(
    run: AnyRun = "latest",
    runs: RunsRoot = Path("runs"),
    goal: Goal = None,
    as_json: AsJson = False,
) -> None:
    """Show the results of a run, or of all runs of an execution."""
    from testbed.cli import shown_runs
    from testbed.results.tables.comparison import compare as compare_runs

    found = shown_runs.all_runs([run], runs)
    comparison = compare_runs(found, goal)
    if as_json:
        shown_runs.print_json([shown_runs.shown_whole(found_run) for found_run in found])
        return
    shown_runs.print_comparison(comparison)
    for row, found_run in zip(comparison.rows, found, strict=True):
        shown_runs.print_run(found_run, row.name)


def compare(
    run: Annotated[list[str], NAMED],
    *,
    runs: RunsRoot = Path("runs"),
    goal: Goal = None,
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="The figure's file: .svg, .png or .pdf."),
    ] = Path("compare.svg"),
    ingress: Annotated[
        Measure,
        typer.Option(
            help="The bytes to compare: of gradients, with the framing, or with all headers."
        ),
    ] = "wire",
    linear: Annotated[
        bool, typer.Option("--linear", help="Draw the bytes on a linear axis.")
    ] = False,
    energy: Annotated[
        bool, typer.Option("--energy", help="Draw against the devices' energy instead of bytes.")
    ] = False,
    baseline: Baseline = None,
    csv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the table of the runs to this file, too, as CSV."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs: tables, and a figure of accuracy, or their own measure, versus ingress or energy.

    Runs that differ only in their seed make one curve: their mean, with a band from the lowest to the
    highest.
    """
    from testbed.cli import shown_runs
    from testbed.results.figures.chart_files import write_figure
    from testbed.results.reading.curves import curves_of
    from testbed.results.tables import reaching
    from testbed.results.tables.comparison import compare as compare_runs
    from testbed.results.tables.comparison import lines, records
    from testbed.results.tables.device_use_table import NO_ENERGY
    from testbed.results.tables.table import plain_text, write_csv

    found = shown_runs.all_runs(run, runs)
    comparison = compare_runs(found, goal, baseline)
    reached = reaching.reaching(curves_of(found), goal, baseline, ingress)
    if energy and not any(curve.has_energy for curve in curves_of(found)):
        raise SpecError(f"--energy: {NO_ENERGY}")
    figure = write_figure(found, out, "joules" if energy else ingress, linear, goal)
    if csv is not None:
        try:
            write_csv(csv, lines(comparison))
        except OSError as error:
            raise SpecError(
                f"{csv} cannot be written ({error.strerror}): name another file by --csv"
            ) from error
    if as_json:
        to_reach = reaching.records(reached)
        shown_runs.print_json(records(comparison) | {"to_reach": to_reach, "figure": str(figure)})
        return
    shown_runs.print_comparison(comparison)
    typer.echo("")
    typer.echo(plain_text(reached))
    typer.echo("")
    typer.echo(printable(f"figure: {figure}"))
    if csv is not None:
        typer.echo(printable(f"table: {csv}"))


def report(
    run: Annotated[list[str] | None, NAMED] = None,
    *,
    runs: RunsRoot = Path("runs"),
    goal: Goal = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The report's file, with figures/ beside it; by default report.html in the directory "
            "of the run or execution, or for several of them in the current directory.",
        ),
    ] = None,
    baseline: Baseline = None,
    as_json: AsJson = False,
) -> None:
    """Write report.html and figures/ of runs anew."""
    from testbed.cli import shown_runs
    from testbed.results.figures.chart_files import write_figures
    from testbed.results.report.report import write_report

    named = run or ["latest"]
    found = shown_runs.all_runs(named, runs)
    if out is None:
        home = shown_runs.home_of(found) if len(named) == 1 else Path()
        if len(named) == 1 and (owner := home.stat().st_uid) != os.geteuid():
            raise SpecError(
                f"{home} belongs to user {owner}: name another place for the report by --out, or write "
                "it as that user"
            )
        out = home / "report.html"
    written = write_report(found, out, goal, baseline)
    figures = write_figures(found, out.parent / "figures", goal)
    if as_json:
        shown_runs.print_json({"report": str(written), "figures": [str(path) for path in figures]})
        return
    typer.echo(printable(f"report: {written}"))
    for path in figures:
        typer.echo(printable(f"figure: {path}"))
