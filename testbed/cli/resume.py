"""``testbed resume``: go on with a run or an execution that ended early."""

import os
import time
from pathlib import Path

from testbed.cli.metrics import MetricsOptions
from testbed.cli.options import (
    AnyRun,
    AsJson,
    MetricsLinger,
    MetricsPort,
    MetricsWorkers,
    Report,
    RunsRoot,
)
from testbed.cli.run import show_results


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
