"""Lines, tables and JSON of runs, as ``testbed ls``, ``show``, ``compare`` and ``report`` print them.

A terminal gets tables with colours; a pipe gets plain aligned lines, as wide as they need to be;
``--json`` is for scripts.
"""

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from testbed import number_text as q
from testbed.display.standard_streams import tell
from testbed.experiment.labels import RESERVED
from testbed.results.reading.finding import Execution, divided, resolve
from testbed.results.reading.journals import NoRunError
from testbed.results.reading.recorded_faults import alive, went_down
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.tables.classes import class_rows
from testbed.results.tables.comparison import ComparisonTable
from testbed.results.tables.device_use_table import in_words
from testbed.results.tables.diagnostics import diagnostic_rows
from testbed.results.tables.fault_table import in_a_line, never_struck
from testbed.results.tables.fidelity_table import fidelity_in_words
from testbed.results.tables.listing import listing
from testbed.results.tables.of_run import tables_of
from testbed.results.tables.probed_links_table import in_a_sentence
from testbed.results.tables.table import STYLES, Table, for_terminal, plain_text
from testbed.results.tables.verdict import left_out, no_update, verdict
from testbed.run_endings import not_finite_from
from testbed.telemetry.json_text import json_text
from testbed.untrusted_text import printable

_ELSEWHERE = {"ended", "reason", "classes", "diagnostics"}
"""The manifest's entries that ``show --json`` has in another place."""
_DIFFERENCES = 5
"""The most differences between ledgers that are shown for a run."""


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


def print_list(executions: Sequence[Execution]) -> None:
    """Print a line for each run, the state coloured; no id is cut, so that it can be copied."""
    table = listing([run for execution in executions for run in execution.runs])
    lines = plain_text(Table(table.headings, table.cells)).splitlines()
    typer.echo(typer.style(lines[0], bold=True))
    colours: dict[str, str] = {str(state): colour for state, colour in STYLES.items()}
    for line, row in zip(lines[1:], table.cells, strict=True):
        state = row[1]
        colour = colours[state]
        typer.echo(line.replace(f" {state} ", f" {typer.style(state, fg=colour)} ", 1))
    for execution in executions:
        _print_left_out(execution.unreadable)


def print_run(run: RecordedRun, name: str) -> None:
    """Print facts and tables of one run below its name."""
    typer.echo("")
    typer.echo(printable(name))
    for fact, value in _facts(run).items():
        typer.echo(printable(f"  {fact:<11} {value}"))
    for table in tables_of(run).values():
        typer.echo(textwrap.indent(plain_text(table), "  "))
    for peer, ingress in run.summary.peers.items():
        typer.echo(
            f"  {peer:<11} payload {q.as_bytes(ingress.payload_bytes)}, message "
            f"{q.as_bytes(ingress.message_bytes)}, wire {q.as_bytes(ingress.wire_bytes)} in all"
        )


def print_json(content: Any) -> None:
    """Print a value as indented JSON."""
    typer.echo(json_text(content, indent=2))


def _print_left_out(unreadable: Sequence[NoRunError]) -> None:
    for error in unreadable:
        tell(printable(f"left out: {error}"))


def all_runs(named: Sequence[str], root: Path) -> tuple[RecordedRun, ...]:
    """Return the runs that the names stand for and that can be read, each once; tell of the others.

    A shell's ``runs/first/*/*`` also names the figures and tables that stand beside runs; these are no
    mistake, as long as there are runs.

    Raises:
        NoRunError: nothing has such a name, or none can be read.
    """
    left_out: list[NoRunError] = []
    runs = [text for text in named if not _stands_beside_runs(Path(text))] or named
    found = {run.directory: run for text in runs for run in resolve(text, root, left_out)}
    kept, unreadable = divided(tuple(found.values()), RecordedRun.read_all)
    if not kept:
        raise unreadable[0]
    _print_left_out((*left_out, *unreadable))
    return kept


def _stands_beside_runs(path: Path) -> bool:
    return path.name in RESERVED and any(path.parent.glob("*/manifest.json"))


def home_of(runs: Sequence[RecordedRun]) -> Path:
    """Return the directory for a report of these runs: their execution's, or the run's own.

    A report of one run of an execution must not replace the report of all of its runs.
    """
    directory = runs[0].directory
    siblings = list(directory.parent.glob("*/manifest.json"))
    return directory if len(runs) < len(siblings) else directory.parent


def listed(execution: Execution) -> dict[str, object]:
    """Return an execution and its runs for JSON."""
    return {
        "execution": execution.id,
        "directory": str(execution.directory),
        "runs": [_shown(run) for run in execution.runs],
        "unreadable": [str(error) for error in execution.unreadable],
    }


def _shown(run: RecordedRun) -> dict[str, object]:
    return {
        "run": run.id,
        "directory": str(run.directory),
        "manifest": run.manifest.model_dump(mode="json", exclude=_ELSEWHERE),
        **run.summary.model_dump(mode="json"),
    }


def shown_whole(run: RecordedRun) -> dict[str, object]:
    """Return a run for JSON, with what tables and journals hold: classes, links, devices."""
    tables: dict[str, Sequence[Any]] = {
        "classes": class_rows(run),
        "diagnostics": diagnostic_rows(run),
        "over_links": run.over_links,
        "devices": run.utilisation,
    }
    return _shown(run) | {name: list(map(asdict, rows)) for name, rows in tables.items()}


def _faults(run: RecordedRun) -> dict[str, str]:
    """Return lines about a run's faults and the workers still alive; empty without faults."""
    if not run.faults:
        return {}
    *_, counts = alive(run.faults, run.manifest.workers)
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


def _hosts(run: RecordedRun) -> dict[str, str]:
    """Return a line for each further host of a run: who is there, and what the way adds to delays."""
    lines = {}
    for name, host in run.manifest.hosts.items():
        names = f" ({', '.join(host.names)})" if host.names else ""
        parts = [q.as_number(host.devices, "device") + names]
        parts += [f"{q.as_delay(host.delay)} away"] if host.delay is not None else []
        parts += [
            f"system clock{at} {1000 * clock.system:+.2f} ± {1000 * clock.error:.2f} ms"
            for at, clock in (("", host.clock), (" at the end", host.clock_at_end))
            if clock
        ]
        parts += [
            f"{one.count:,} {one.direction}s of {one.links} have {q.as_delay(one.added)} more delay "
            f"than the {q.as_delay(one.asked)} asked"
            for one in run.manifest.underlay
            if one.host == name and one.asked
        ]
        lines[f"host {name}"] = "; ".join(parts)
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
        "workers": f"{manifest.workers:,}; dead without a fault: {q.as_count(summary.workers_lost)}",
        **_faults(run),
        **({"never struck": sentence} if (sentence := never_struck(run)) else {}),
        **no_update(run),
        **left_out(run),
        **in_a_sentence(run),
        "host": f"{manifest.host.name}, kernel {manifest.host.kernel}",
        **_hosts(run),
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
        facts[f"{difference.ledgers}{whose}:"] = (
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
