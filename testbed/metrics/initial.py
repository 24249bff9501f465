"""The state of a run before it begins, from its plan or from its directory."""

from collections.abc import Mapping
from typing import Any

from testbed.metrics.recorded import Recorded, read_execution
from testbed.metrics.state import RunState
from testbed.planning.plan import Plan
from testbed.runs.class_records import classes_of_run, device_classes
from testbed.units import parse_share


def of_plan(plan: Plan, execution: str) -> RunState:
    """Return the state of a planned run before its beginning."""
    spec, settings = plan.spec, plan.settings
    emulated = spec.engine == "emulation"
    return RunState(
        run=f"{spec.name}/{execution}",
        algorithm=plan.label,
        info={
            # Of a folder only the name: its path concerns only the host.
            "dataset": spec.dataset.name.rstrip("/").rpartition("/")[2],
            "model": spec.model.name,
            "engine": spec.engine,
            "clock": spec.clock,
            "runtime": spec.devices.runtime if emulated else "none",
            "seed": str(spec.seed),
            "workers": str(settings.workers),
        },
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
    emulated = manifest.engine == "emulation"
    return RunState(
        run=read_execution(recorded.run.directory),
        algorithm=manifest.algorithm,
        info={
            "dataset": str(spec["dataset"]["name"]).rstrip("/").rpartition("/")[2],
            "model": spec["model"]["name"],
            "engine": manifest.engine,
            "clock": manifest.clock,
            "runtime": spec["devices"].get("runtime", "namespaces") if emulated else "none",
            "seed": str(manifest.seed),
            "workers": str(manifest.workers),
        },
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
