"""``testbed run``, ``simulate``, ``resume``, ``plan`` and ``schema``."""

import os
import shlex
import time
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.metrics import MetricsOptions
from testbed.cli.options import (
    AnyRun,
    AsJson,
    Hosts,
    MetricsLinger,
    MetricsPort,
    MetricsWorkers,
    Report,
    RunsRoot,
)
from testbed.errors import SpecError
from testbed.number_text import as_number
from testbed.telemetry.json_text import json_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from testbed.execution import ExecutionResult
    from testbed.experiment.load import AnySpec
    from testbed.metrics.exporter import Exporter
    from testbed.orchestrator.hosts.hosts_file import HostsFile
    from testbed.orchestrator.hosts.spread_outline import SpreadOutline
    from testbed.planning.plans import AnyPlan

SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="The experiment file (YAML).")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Use another value than the file's, e.g. devices.workers=50 or algorithms.1.ratio=0.1; "
        "may be given more than once.",
    ),
]
Seed = Annotated[int | None, typer.Option(help="Use another seed than the file's.")]
Out = Annotated[Path, typer.Option(metavar="DIR", help="The folder that holds the runs.")]
Serve = Annotated[
    bool,
    typer.Option(
        "--serve", help="Serve pages that show the runs as they grow, until they have ended."
    ),
]


def run(
    spec: SpecFile,
    *,
    set_: Overrides = None,
    seed: Seed = None,
    out: Out = Path("runs"),
    report: Report = True,
    as_json: AsJson = False,
    metrics_port: MetricsPort = None,
    metrics_linger: MetricsLinger = None,
    metrics_workers: MetricsWorkers = False,
    serve: Serve = False,
    hosts: Hosts = None,
    accept_underlay: Annotated[
        bool,
        typer.Option(
            "--accept-underlay",
            help="With --hosts, take links whose delay is longer than asked, since the way between the "
            "hosts takes longer; the results say by how much.",
        ),
    ] = False,
) -> None:
    """Run an experiment and write its report.

    The status is 0 if every run has completed, 3 if a run has diverged (its parameters or their loss
    are not finite numbers), 4 if one was disturbed (by the virtual clock it lost a device that its file
    does not lose), 1 if a run failed, and that of the signal if one has ended the runs.
    """
    began = time.monotonic()
    serving = MetricsOptions.from_options(metrics_port, metrics_linger, metrics_workers)
    from testbed.experiment.load import load_any

    # The imports below take seconds, in which a file that is wrong would not be refused.
    loaded = load_any(spec, set_ or (), seed)
    from testbed.display.displayed import displayed
    from testbed.display.standard_streams import tell
    from testbed.execution import check, execute
    from testbed.pages.serving import beside
    from testbed.planning.plans import plans_of

    plans = plans_of(loaded)
    check(plans, out, spread=hosts is not None)
    with (
        _spread(hosts, plans, accept_underlay=accept_underlay) as spread,
        serving.exporter() as exporter,
    ):
        with beside(out) if serve else nullcontext() as pages, displayed() as watch:
            if pages is not None:
                tell(f"pages: {pages}")
            execution = execute(loaded, out, watch, began, exporter, report=report, hosts=spread)
        show_results(execution, as_json, serving, exporter)


@contextmanager
def _spread(
    named: str | None, plans: "Sequence[AnyPlan]", *, accept_underlay: bool
) -> "Iterator[HostsFile | None]":
    """Yield the hosts that ``--hosts`` names, once they are seen to be able to carry out runs."""
    if named is None:
        yield None
        return
    from testbed.orchestrator.hosts import spread
    from testbed.ray_cluster.ray_hosts import named_hosts

    with named_hosts(named, plans) as hosts:
        accepted = replace(hosts, accept_underlay=accept_underlay)
        spread.check(accepted, plans)
        yield accepted


def simulate(
    spec: SpecFile,
    *,
    set_: Overrides = None,
    seed: Seed = None,
    out: Out = Path("runs"),
    report: Report = True,
    as_json: AsJson = False,
    metrics_port: MetricsPort = None,
    metrics_linger: MetricsLinger = None,
    metrics_workers: MetricsWorkers = False,
) -> None:
    """Run an experiment in this process, under the virtual clock, without any container.

    It is the same as `testbed run SPEC --set engine=simulation --set clock=virtual`: parameters,
    payload and message bytes equal those of an emulation under that clock to the bit; wire bytes are
    modelled.
    """
    run(
        spec,
        set_=[*(set_ or ()), "engine=simulation", "clock=virtual"],
        seed=seed,
        out=out,
        report=report,
        as_json=as_json,
        metrics_port=metrics_port,
        metrics_linger=metrics_linger,
        metrics_workers=metrics_workers,
    )


def resume(
    run: AnyRun = "latest",
    *,
    runs: RunsRoot = Path("runs"),
    report: Report = True,
    as_json: AsJson = False,
    metrics_port: MetricsPort = None,
    metrics_linger: MetricsLinger = None,
    metrics_workers: MetricsWorkers = False,
) -> None:
    """Go on with a run that was interrupted or killed, or whose disk filled up.

    It goes on in its own directory from its last checkpoint (`checkpoints: {every: N}`), or without
    one from the beginning; under the virtual clock it ends as if it had not been interrupted. In an
    execution, every incomplete run goes on and every run that has not begun is carried out.
    """
    began = time.monotonic()
    from testbed import execution
    from testbed.display.displayed import displayed
    from testbed.results.reading.finding import resolve, without_runs
    from testbed.runs import resuming

    serving = MetricsOptions.from_options(metrics_port, metrics_linger, metrics_workers)
    if (directory := without_runs(run, runs)) is not None:
        jobs = resuming.never_begun(directory)
    else:
        found = resolve(run, runs)
        directory = found[0].directory.parent
        is_run = any(os.path.lexists(path / "manifest.json") for path in (Path(run), runs / run))
        jobs = resuming.left(found, whole=not is_run)
    execution.check([job.plan for job in jobs], directory)
    with serving.exporter() as exporter:
        with displayed() as watch:
            carried_out = execution.resume(directory, jobs, watch, began, exporter, report=report)
        show_results(carried_out, as_json, serving, exporter)


def show_results(
    execution: "ExecutionResult",
    as_json: bool,
    serving: MetricsOptions,
    exporter: "Exporter | None",
) -> None:
    """Print the results of an execution, and keep its final metrics available.

    Raises:
        RunError: one of its runs is not ``completed``.
        OutputError: the JSON cannot be printed.
    """
    from testbed.display.standard_streams import results_of_runs
    from testbed.run_endings import worst
    from testbed.runs.ending import incomplete

    with results_of_runs(as_json):
        if as_json:
            typer.echo(json_text(_as_json(execution), indent=2))
        else:
            _print_table(execution)
    if not any(summary["ended"] == "interrupted" for summary in execution.summaries):
        serving.linger(exporter)
    if (ended := worst(execution.summaries)) is not None:
        directory = shlex.quote(str(execution.directory))
        goes_on = ended["ended"] == "interrupted" and "programs" not in ended
        raise incomplete(
            ended, f"; `testbed resume {directory}` goes on where it stopped" if goes_on else ""
        )


def plan(
    spec: SpecFile,
    *,
    set_: Overrides = None,
    seed: Seed = None,
    drawing: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw the network of the first run into this file (.svg, or .mmd for Mermaid).",
        ),
    ] = None,
    as_json: AsJson = False,
    hosts: Hosts = None,
) -> None:
    """Show what an experiment would create, and start nothing.

    What this host lacks for it is said below; the status is 0 all the same, since the experiment is
    right and another host may have it.
    """
    from testbed.experiment.load import load_any

    loaded = load_any(spec, set_ or (), seed)
    from testbed.cli import plan_network, plan_text
    from testbed.cli import plan_programs as plan_programs_text
    from testbed.doctor.requirements import problems
    from testbed.experiment.programs_spec import ProgramsSpec
    from testbed.planning.plan import plan as plan_algorithms
    from testbed.planning.program_plan import plan_programs

    if isinstance(loaded, ProgramsSpec):
        if drawing is not None:
            raise SpecError("--drawing: networks of programs are not drawn")
        (own,) = plan_programs(loaded)
        lacks = list(map(str, problems([own], Path("runs"))))
        content, lines = [plan_programs_text.as_json(own)], plan_programs_text.describe(own)
    else:
        plans = plan_algorithms(loaded)
        if drawing is not None:
            plan_network.write_drawing(plans[0], drawing)
        lacks = list(map(str, problems(plans, Path("runs"))))
        content = [plan_text.as_json(plan) for plan in plans]
        lines = plan_text.describe(plans)
    if hosts is not None:
        spread = _outline(hosts, loaded)
        content[0] |= {"spread": asdict(spread)}
        lines = [*lines, "", *spread.lines()]
    if as_json:
        typer.echo(json_text([one | {"host_lacks": lacks} for one in content], indent=2))
        return
    for line in lines:
        typer.echo(line)
    for reason in lacks:
        typer.echo(f"this host cannot run it: {reason}")
    if drawing is not None:
        typer.echo(f"drawing: {drawing}")


def _outline(named: str, loaded: "AnySpec") -> "SpreadOutline":
    """Return on which of the hosts each device of the first run would be."""
    from testbed.orchestrator.hosts.spread_outline import outline
    from testbed.planning.plans import plans_of
    from testbed.ray_cluster.ray_hosts import named_hosts

    first = plans_of(loaded)[0]
    with named_hosts(named, [first]) as hosts:
        return outline(hosts, first)


def schema() -> None:
    """Print the JSON Schema of experiment files, for editors."""
    from testbed.experiment.load import json_schema_of_any

    typer.echo(json_text(json_schema_of_any(), indent=2))


def _print_table(execution: "ExecutionResult") -> None:
    from testbed.cli.shown_runs import print_comparison
    from testbed.results.reading.finding import resolve
    from testbed.results.tables.comparison import compare
    from testbed.results.tables.verdict import verdict

    runs = resolve(str(execution.directory), execution.directory.parent.parent)
    comparison = compare(runs)
    print_comparison(comparison)
    if all(run.summary.traffic and run.summary.traffic.modelled for run in runs):
        typer.echo("\nbytes: payload and messages counted, wire modelled (headers, ACKs)")
    else:
        found = [(row.name, verdict(run)) for row, run in zip(comparison.rows, runs, strict=True)]
        agreed = sum(outcome.state == "good" for _, outcome in found)
        typer.echo(f"\nbytes: the three ledgers agree in {agreed} of {as_number(len(runs), 'run')}")
        for name, outcome in found:
            if outcome.state == "unknown":
                typer.echo(f"  {name}: {outcome.text}")
    none = f"none; `testbed report {shlex.quote(str(execution.directory))}` writes it"
    typer.echo(f"report: {execution.report or none}")


def _as_json(execution: "ExecutionResult") -> dict[str, object]:
    return {
        "directory": str(execution.directory),
        "report": execution.report and str(execution.report),
        "runs": list(execution.summaries),
    }
