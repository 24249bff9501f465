"""``testbed sweep``: every combination of the values in an experiment file's ``sweep`` section."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.options import AsJson
from testbed.cli.run import Out, Overrides, Seed, SpecFile
from testbed.errors import InterruptedRunError, RunError
from testbed.number_text import as_bytes, as_decimal
from testbed.run_endings import STATES
from testbed.telemetry.json_text import json_text

if TYPE_CHECKING:
    from testbed.sweeps.carrying_out_sweep import SweepProgress

_PRINTED = 40
"""Rows up to which the table is printed."""


def sweep(
    spec: SpecFile,
    *,
    set_: Overrides = None,
    seed: Seed = None,
    out: Out = Path("runs"),
    at_once: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Simulations at a time; by default one for each core."
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Run on a Ray cluster: auto for the one that this host is in, or its address.",
        ),
    ] = None,
    only_plan: Annotated[
        bool, typer.Option("--plan", help="Show what would run, and start nothing.")
    ] = False,
    figures: Annotated[
        bool, typer.Option("--figures/--no-figures", help="Draw the figures at the end.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Run every combination of the values in an experiment file's sweep section.

    Simulations run side by side, one on each core, or on a Ray cluster; emulations one after the other.
    Started again, it goes on where it stopped: complete runs are kept, disturbed ones are made again,
    and new values of a key only add runs. The results are one table (results.parquet, results.csv) and
    figures, beside the run directories. The status is 3 if a run has diverged, 4 if one was disturbed,
    and 1 if one failed.
    """
    from testbed.display.many_runs import ManyRuns
    from testbed.display.standard_streams import results_of_runs, tell
    from testbed.experiment.combinations import load_any_sweep
    from testbed.sweeps import carrying_out_sweep as sweeping
    from testbed.sweeps.missing_runs import Means
    from testbed.sweeps.needed_runs import wanted

    loaded = load_any_sweep(spec, set_ or (), seed)

    def say(text: str) -> None:
        tell(text, output=not as_json)

    if only_plan:
        for one in wanted(loaded, out):
            typer.echo(one.title)
        return
    swept = sweeping.carry_out(loaded, out, Means(say, ManyRuns, at_once, ray), figures=figures)
    with results_of_runs(as_json):
        show(swept, as_json)
    if swept.caught is not None:
        done = f"{swept.complete} of {len(swept.wanted)} runs are complete"
        raise InterruptedRunError(
            f"interrupted; {done}: `testbed sweep {spec}` goes on where it stopped", swept.caught
        )
    if swept.failed:
        raise RunError(f"{swept.failures}; `testbed sweep {spec}` tries them once more")
    if swept.worst is not None:
        ended, told = swept.worst
        again = f"; `testbed sweep {spec}` makes it again" * (not STATES[ended].kept)
        raise RunError(told + again, STATES[ended].status)


def show(swept: "SweepProgress", as_json: bool) -> None:
    """Print the results of a sweep."""
    if as_json:
        content = {
            "directory": str(swept.folder),
            "runs": len(swept.wanted),
            "complete": swept.complete,
            "failed": {job.title: job.result and job.result.reason for job in swept.failed},
            **{
                ended: {
                    run.directory.name: run.summary.reason
                    for run in swept.others
                    if run.summary.ended == ended
                }
                for ended in ("diverged", "disturbed")
            },
            "table": [str(path) for path in swept.table],
            "figures": [str(path) for path in swept.figures],
        }
        typer.echo(json_text(content, indent=2))
        return
    _print_table(swept)
    for path in swept.table:
        typer.echo(f"table: {path}")
    for path in swept.figures:
        typer.echo(f"figure: {path}")


def _print_table(swept: "SweepProgress") -> None:
    from pyarrow import parquet

    from testbed.results.tables.table import Table, plain_text

    if not swept.table:
        return
    lines = parquet.read_table(swept.table[0]).to_pylist()
    if len(lines) > _PRINTED:
        return
    left_out = {"run", "reason", "host_seconds", "training_seconds", "parameters_sha256"}
    # A column that no run has a value for is not printed: of accuracies, where there are no classes.
    headings = [
        name
        for name in lines[0]
        if name not in left_out and any(line[name] not in (None, "") for line in lines)
    ]
    cells = [[_cell(name, line[name]) for name in headings] for line in lines]
    typer.echo(plain_text(Table(headings, cells)))


def _cell(name: str, value: Any) -> str:
    """Return a cell as it is printed: accuracies with two decimals, bytes with a unit."""
    if value is None:
        return ""
    if name.endswith("_accuracy"):
        return as_decimal(value, 2)
    if name.startswith(("best_", "final_")):
        return f"{value:.4g}"
    return as_bytes(value) if name.endswith("_bytes") else str(value)
