"""``testbed ls``, ``show``, ``compare`` and ``report``: read run directories and show their content.

A terminal gets tables with colours; a pipe gets plain aligned lines, as wide as they need to be;
``--json`` is for scripts.
"""

import os
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from testbed import number_text as q
from testbed.cli.options import NAMED, AnyRun, AsJson, RunsRoot
from testbed.display.standard_streams import tell
from testbed.errors import SpecError
from testbed.number_text import Measure
from testbed.results.reading.curves import curves_of
from testbed.results.reading.finding import Execution, divided, find, resolve, with_ends
from testbed.results.reading.journals import NoRunError
from testbed.results.reading.recorded_faults import alive, went_down
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.tables.classes import class_rows
from testbed.results.tables.classes import records as class_records
from testbed.results.tables.comparison import ComparisonTable, lines, records
from testbed.results.tables.comparison import compare as compare_runs
from testbed.results.tables.device_use_table import NO_ENERGY, in_words
from testbed.results.tables.device_use_table import records as utilisation_records
from testbed.results.tables.diagnostics import records as diagnostic_records
from testbed.results.tables.fault_table import in_a_line, never_struck
from testbed.results.tables.fidelity_table import fidelity_in_words
from testbed.results.tables.link_traffic_table import records as link_use_records
from testbed.results.tables.listing import listing
from testbed.results.tables.of_run import tables_of
from testbed.results.tables.probed_links_table import in_a_sentence
from testbed.results.tables.reaching import reaching
from testbed.results.tables.reaching import records as reaching_records
from testbed.results.tables.table import STYLES, Table, for_terminal, plain_text, write_csv
from testbed.results.tables.verdict import left_out, no_update, verdict
from testbed.run_endings import not_finite_from
from testbed.telemetry.json_text import json_text
from testbed.untrusted_text import printable

_ELSEWHERE = {"ended", "reason", "classes", "diagnostics"}
"""The manifest's entries that ``show --json`` has in another place."""
_DIFFERENCES = 5
"""The most differences between ledgers that are shown for a run."""
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
    if not runs.is_dir():
        raise NoRunError(
            f"there is no folder {runs}: name the folder of the runs by --runs, or start a run with "
            "`testbed run`"
        )
    executions = [with_ends(execution) for execution in find(runs)]
    if as_json:
        _print_json([_listed(execution) for execution in executions])
        return
    if not executions:
        typer.echo(f"there is no run in {runs} yet")
        return
    table = listing([run for execution in executions for run in execution.runs])
    _print_list(table.headings, table.cells)
    for execution in executions:
        _print_left_out(execution.unreadable)


def _print_left_out(unreadable: Sequence[NoRunError]) -> None:
    for error in unreadable:
        tell(printable(f"left out: {error}"))


def show(
    run: AnyRun = "latest",
    runs: RunsRoot = Path("runs"),
    goal: Goal = None,
    as_json: AsJson = False,
) -> None:
    """Show the results of a run, or of all runs of an execution."""
    found = all_runs([run], runs)
    comparison = compare_runs(found, goal)
    if as_json:
        _print_json([_shown_whole(found_run) for found_run in found])
        return
    print_comparison(comparison)
    for row, found_run in zip(comparison.rows, found, strict=True):
        typer.echo("")
        typer.echo(printable(row.name))
        for name, value in _facts(found_run).items():
            typer.echo(printable(f"  {name:<12}{value}"))
        for table in tables_of(found_run).values():
            typer.echo(textwrap.indent(plain_text(table), "  "))
        for name, peer in found_run.summary.peers.items():
            typer.echo(
                f"  {name:<12}payload {q.as_bytes(peer.payload_bytes)}, message "
                f"{q.as_bytes(peer.message_bytes)}, wire {q.as_bytes(peer.wire_bytes)} in all"
            )


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
    from testbed.results.figures.chart_files import write_figure

    found = all_runs(run, runs)
    comparison = compare_runs(found, goal, baseline)
    reached = reaching(curves_of(found), goal, baseline, ingress)
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
        _print_json(
            records(comparison) | {"to_reach": reaching_records(reached), "figure": str(figure)}
        )
        return
    print_comparison(comparison)
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
    from testbed.results.figures.chart_files import write_figures
    from testbed.results.report.report import write_report

    named = run or ["latest"]
    found = all_runs(named, runs)
    if out is None:
        home = _home(found) if len(named) == 1 else Path()
        if len(named) == 1 and (owner := home.stat().st_uid) != os.geteuid():
            raise SpecError(
                f"{home} belongs to user {owner}: name another place for the report by --out, or write "
                "it as that user"
            )
        out = home / "report.html"
    written = write_report(found, out, goal, baseline)
    figures = write_figures(found, out.parent / "figures", goal)
    if as_json:
        _print_json({"report": str(written), "figures": [str(path) for path in figures]})
        return
    typer.echo(printable(f"report: {written}"))
    for path in figures:
        typer.echo(printable(f"figure: {path}"))


def print_comparison(comparison: ComparisonTable) -> None:
    """Print a comparison on stdout, and a line for each run that is not ``completed``."""
    from rich.console import Console

    console = Console(highlight=False)
    if console.is_terminal:
        console.print(for_terminal(comparison, console.width))
    else:
        typer.echo(plain_text(comparison))
    for remark in comparison.remarks:
        typer.echo(printable(remark))


def _print_list(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print plain lines, the state coloured on a terminal; no id is cut, so that it can be copied."""
    lines = plain_text(Table(headings, rows)).splitlines()
    typer.echo(typer.style(lines[0], bold=True))
    colours: dict[str, str] = {str(state): colour for state, colour in STYLES.items()}
    for line, row in zip(lines[1:], rows, strict=True):
        state = row[1]
        colour = colours[state]
        typer.echo(line.replace(f" {state} ", f" {typer.style(state, fg=colour)} ", 1))


def _print_json(content: Any) -> None:
    typer.echo(json_text(content, indent=2))


def all_runs(named: Sequence[str], root: Path) -> tuple[RecordedRun, ...]:
    """Return the runs that the names stand for and that can be read, each once; tell of the others.

    Raises:
        NoRunError: nothing has such a name, or none can be read.
    """
    left_out: list[NoRunError] = []
    found = {run.directory: run for text in named for run in resolve(text, root, left_out)}
    kept, unreadable = divided(tuple(found.values()), RecordedRun.read_all)
    if not kept:
        raise unreadable[0]
    _print_left_out((*left_out, *unreadable))
    return kept


def _home(runs: Sequence[RecordedRun]) -> Path:
    """Return the directory for a report of these runs: their execution's, or the run's own.

    A report of one run of an execution must not replace the report of all of its runs.
    """
    directory = runs[0].directory
    siblings = list(directory.parent.glob("*/manifest.json"))
    return directory if len(runs) < len(siblings) else directory.parent


def _listed(execution: Execution) -> dict[str, Any]:
    return {
        "execution": execution.id,
        "directory": str(execution.directory),
        "runs": [_shown(run) for run in execution.runs],
        "unreadable": [str(error) for error in execution.unreadable],
    }


def _shown(run: RecordedRun) -> dict[str, Any]:
    return {
        "run": run.id,
        "directory": str(run.directory),
        "manifest": run.manifest.model_dump(mode="json", exclude=_ELSEWHERE),
        **run.summary.model_dump(mode="json"),
    }


def _shown_whole(run: RecordedRun) -> dict[str, Any]:
    """Return ``_shown`` and what tables and journals hold: classes, diagnostics, links, devices."""
    rows = {"classes": class_records(class_rows(run)), "diagnostics": diagnostic_records(run)}
    rows |= {"over_links": link_use_records(run), "devices": utilisation_records(run)}
    return _shown(run) | rows


def _faults(run: RecordedRun) -> dict[str, str]:
    """Return lines about a run's faults and the workers still alive; empty without faults."""
    if not run.faults:
        return {}
    _, counts = alive(run.faults, run.manifest.workers)
    lines = {"faults": in_a_line(run)}
    if went_down(run.faults):
        lines["alive"] = (
            f"{counts[-1]:,} of {run.manifest.workers:,} workers, at least {counts.min():,}"
        )
    return lines


def _programs(run: RecordedRun) -> dict[str, str]:
    """Return a line for each program of a user's: its devices, and how it ended there."""
    lines = {}
    for name, devices in run.manifest.programs.items():
        where = devices[0] if len(devices) == 1 else f"{devices[0]} to {devices[-1]}"
        ended = run.summary.programs.get(name, {})
        count = Counter(one.words for one in ended.values())
        how = ", ".join(f"{number} {words}" for words, number in sorted(count.items()))
        lines[name] = f"on {where}; {how or 'did not end before the run did'}"
    return lines


def _facts(run: RecordedRun) -> dict[str, str]:
    manifest, summary = run.manifest, run.summary
    diverged_at = run.evaluations.diverged_at
    facts = {
        "run": run.id,
        "state": summary.ended + (f": {summary.reason}" if summary.reason else ""),
        "started": manifest.started.strftime("%Y-%m-%d %H:%M:%S UTC"),
        "set-up": q.as_duration(summary.setup_seconds),
        "engine": run.clock,
        "ran" if manifest.programs else "training": run.trained,
        "workers": f"{manifest.workers:,}; {q.as_count(summary.workers_lost)} died by themselves",
        **_faults(run),
        **({"never struck": sentence} if (sentence := never_struck(run)) else {}),
        **no_update(run),
        **left_out(run),
        **in_a_sentence(run),
        "host": f"{manifest.host.name}, kernel {manifest.host.kernel}",
        **_programs(run),
        **(
            {}
            if manifest.programs
            else {"parameters": f"sha256 {summary.parameters_sha256 or q.UNKNOWN}"}
        ),
        "directory": str(run.directory),
    }
    facts["traffic"] = verdict(run).text
    if host := fidelity_in_words(run):
        facts["fidelity"] = host
    differences = summary.traffic.differences if summary.traffic else ()
    for difference in differences[:_DIFFERENCES]:
        whose = f", {difference.device}" if difference.device else ""
        facts[f"{difference.ledgers}{whose}: "] = (
            f"{difference.expected:,} and {difference.found:,}: {difference.reason}"
        )
    if len(differences) > _DIFFERENCES:
        facts["and"] = f"{len(differences) - _DIFFERENCES} more: `testbed traffic` lists all"
    if used := in_words(run):
        facts["use"] = used
    if diverged_at is not None and summary.ended != "diverged":
        facts["diverged"] = not_finite_from(diverged_at)
    if summary.reconstructed:
        facts["numbers"] = "from the journals: the run has no summary (yet)"
    for level in ("warning", "error"):
        events = [event for event in run.events if event.level == level]
        if events:
            facts[f"{level}s"] = f"{len(events):,}, the last: {events[-1].event}"
    return facts
