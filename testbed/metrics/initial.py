"""The state of a run before it begins, from its plan or from its directory."""

from collections.abc import Mapping
from typing import Any

from testbed.experiment.load import AnySpec
from testbed.metrics.recorded import Recorded, read_execution
from testbed.metrics.state import RunState
from testbed.planning.plan import Plan
from testbed.results.reading.run_files import Manifest
from testbed.runs.class_records import classes_of_run, device_classes
from testbed.units import parse_share


def info_of(
    run: AnySpec | Manifest, workers: int, runtime: str, dataset: str = "none", model: str = "none"
) -> dict[str, str]:
    """Return the labels of a run's properties; programs of users have no dataset and no model."""
    return {
        # Of a folder only the name: its path concerns only the host.
        "dataset": dataset.rstrip("/").rpartition("/")[2],
        "model": model,
        "engine": run.engine,
        "clock": run.clock,
        "runtime": runtime if run.engine == "emulation" else "none",
        "seed": str(run.seed),
        "workers": str(workers),
    }


def of_plan(plan: Plan, execution: str) -> RunState:
    """Return the state of a planned run before its beginning."""
    spec, settings = plan.spec, plan.settings
    names = spec.devices.runtime, spec.dataset.name, spec.model.name
    return RunState(
        run=f"{spec.name}/{execution}",
        algorithm=plan.label,
        info=info_of(spec, settings.workers, *names),
        target=settings.training.updates,
        classes=classes_of_run(settings),
        worker_names=tuple(plan.workers),
        served=plan.served,
        declared=tuple(one.name for one in plan.diagnostics),
        measure=settings.measure,
    )


def of_recorded(recorded: Recorded) -> RunState:
    """Return the state of a finished run before its beginning."""
    manifest, spec = recorded.run.manifest, recorded.spec
    sections: dict[str, Mapping[str, Any]] = {
        purpose: _plain_classes(spec.get(purpose) or {}) for purpose in ("compute", "waiting")
    }
    runtime = spec["devices"].get("runtime", "namespaces")
    names = runtime, str(spec["dataset"]["name"]), spec["model"]["name"]
    return RunState(
        run=read_execution(recorded.run.directory),
        algorithm=manifest.algorithm,
        info=info_of(manifest, manifest.workers, *names),
        target=spec["training"]["updates"],
        classes=device_classes(sections, manifest.seed, manifest.workers, recorded.device_classes),
        worker_names=recorded.names,
        served=recorded.served,
        declared=tuple(recorded.run.diagnostics),
        measure=None if manifest.measure is None else manifest.measure.quality,
    )


def _plain_classes(section: Mapping[str, Any]) -> dict[str, Any]:
    groups = section.get("classes") or ()
    plain = [{"share": parse_share(g["share"]), "factor": g["factor"]} for g in groups]
    return {"classes": plain}
