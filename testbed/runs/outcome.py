"""The outcome of a run: its summary, and the start of its manifest."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.code_digest import package_digest
from testbed.device_names import EVALUATOR_NAME
from testbed.experiment.plugin_code import plugin_digests
from testbed.experiment.sections.graph import GraphSpec
from testbed.learning.exact import columns
from testbed.messages.reports import Suspected, Welcomed
from testbed.network.sysctls import OF_ALL, OF_ROLES
from testbed.planning import graph_source
from testbed.planning.plan import Plan
from testbed.planning.plans import AnyPlan
from testbed.run_endings import Ended, diverged_at, is_complete, not_finite_from
from testbed.runs import link_records
from testbed.runs.class_records import classes_of_run
from testbed.runs.versions import commit, host, versions
from testbed.telemetry.entries import EvaluationMade, FaultChanged, Noted, RunEntry, Updates
from testbed.telemetry.event_kinds import EventKind


@dataclass(slots=True)
class RunOutcome:
    """The end of a run, and the figures of ``summary.json``.

    Attributes:
        ended: one of ``testbed.run_endings.STATES``.
        reason: why it is not ``completed``; None if it is.
        last_update: seconds of the run's clock from the beginning of training to the last update.
        host_seconds: the same by the host's clock.
        set_up: seconds of the host's clock from the command to the beginning of training.
        first_update: the same from the command to the first update.
        workers_lost: the number of workers or peers that died otherwise than by a fault.
        struck: the devices that each kind of fault struck.
        rules_struck: the places of the rules of faults that struck, in the file's list, from 0.
        disturbed: the first device that a run under the virtual clock lost otherwise than by a fault,
            and when; None if there is none. Its result is then not the one that its file defines.
        iterations, accuracies, losses, measured: of each evaluation: the updates before it, the
            accuracy, the loss, and the value of the run's measure.
        parameters_sha256: the digest of the final parameters; None before they are known.
        finite: False if one of the final parameters is NaN or infinite.
        suspected, welcomed: how often a worker was suspected for its silence, and came back.
    """

    ended: Ended = "failed"
    reason: str | None = None
    updates: int = 0
    payload_bytes: int = 0
    message_bytes: int = 0
    iterations: list[int] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    measured: list[float | None] = field(default_factory=list)
    set_up: float | None = None
    first_update: float | None = None
    last_update: float = 0.0
    host_seconds: float = 0.0
    parameters_sha256: str | None = None
    finite: bool = True
    workers_lost: int = 0
    disturbed: str | None = None
    suspected: int = 0
    welcomed: int = 0
    struck: dict[str, set[str]] = field(default_factory=dict)
    rules_struck: set[int] = field(default_factory=set)

    def take(self, entry: RunEntry) -> None:
        """Count an entry of the run's log."""
        match entry:
            case Updates(rows, version):
                self._updated(rows, version)
            case EvaluationMade(row):
                self.iterations.append(row["iteration"])
                self.accuracies.append(row["accuracy"])
                self.losses.append(row["loss"])
                self.measured.append(row["measured"])
            case Suspected():
                self.suspected += 1
            case Welcomed():
                self.welcomed += 1
            case FaultChanged(record, devices) if record["phase"] == "begin":
                self.rules_struck.add(record["rule"])
                kind = "away" if record.get("away") else record["fault"]
                self.struck.setdefault(kind, set()).update(devices)
            case Noted(kind=EventKind.DIED, device=device) if device != EVALUATOR_NAME:
                self.workers_lost += 1

    def _updated(self, rows: npt.NDArray[Any], version: int) -> None:
        self.updates = version
        if self.first_update is None and self.set_up is not None:
            self.first_update = self.set_up + float(rows["host_time"][0])
        # With several servers, rows of one may come after later ones of another.
        self.last_update = max(self.last_update, float(rows["time"][-1]))
        self.host_seconds = max(self.host_seconds, float(rows["host_time"][-1]))
        self.payload_bytes += int(rows["payload_bytes"].sum())
        self.message_bytes += int(rows["message_bytes"].sum())

    @property
    def pushed(self) -> dict[str, int]:
        """The bytes of all rows of updates: a server's ingress, and what peers have sent."""
        return {"payload_bytes": self.payload_bytes, "message_bytes": self.message_bytes}

    def keeps(self, evaluations: int) -> None:
        """Keep the first evaluations only."""
        for kept in (self.iterations, self.accuracies, self.losses, self.measured):
            del kept[evaluations:]

    def takes(self, parameters: npt.NDArray[np.float32]) -> None:
        """Record the final parameters: SHA-256, as little-endian float32, and if all are finite."""
        self.parameters_sha256 = hashlib.sha256(
            parameters.astype("<f4", copy=False).tobytes()
        ).hexdigest()
        self.finite = bool(np.isfinite(parameters).all())

    def complete(self) -> None:
        """Record the end of a run that has made all its updates, once its parameters are known."""
        self.ended, self.reason = "completed", None
        if (iteration := diverged_at(self.iterations, self.losses)) is not None:
            self.ended, self.reason = "diverged", not_finite_from(iteration)
        elif not self.finite:
            self.ended = "diverged"
            self.reason = "not all of its parameters are finite numbers"
        if self.disturbed is not None:
            self.ended = "disturbed"
            self.reason = f"not the result that the file defines: {self.disturbed}"

    def summary(
        self,
        plan: Plan,
        ingress: Mapping[str, int],
        after_drain: Mapping[str, int] | None,
        servers: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Return the content of ``summary.json``, without the traffic.

        Args:
            ingress: the ingress when the last update was applied.
            after_drain: the ingress when every connection was closed; None if that is not known.
            servers: the part of each server in ``ingress``, by name, if there are several.
        """
        return {
            **plan_entries(plan),
            "ended": self.ended,
            "reason": self.reason,
            "updates": self.updates,
            **self.results(_measure(plan)),
            "ingress": dict(ingress),
            **({"servers": dict(servers)} if servers else {}),
            "ingress_after_drain": None if after_drain is None else dict(after_drain),
            "updates_per_second": self.updates / self.host_seconds if self.host_seconds else 0.0,
            "setup_seconds": self.first_update,
            "training_seconds": self.last_update,
            "host_seconds": self.host_seconds,
            "workers_lost": self.workers_lost,
            **({"suspected": self.suspected, "welcomed": self.welcomed} if self.suspected else {}),
            **self.faults(),
            **({"never_struck": never} if (never := self._never_struck(plan)) else {}),
            "parameters_sha256": self.parameters_sha256,
            "versions": versions(),
        }

    def faults(self) -> dict[str, Any]:
        """Return the summary's entry of how many devices each kind of fault struck; empty without."""
        struck = {kind: len(devices) for kind, devices in self.struck.items()}
        return {"faults": struck} if struck else {}

    def _never_struck(self, plan: Plan) -> list[int]:
        """Return the places of the rules of faults of which a run that has ended saw nothing."""
        faults = [one.fault for one in plan.settings.faults.rules]
        never = [one.rule for one in faults if not one.away and one.rule not in self.rules_struck]
        return never if is_complete(self.ended) else []

    def results(self, measure: Mapping[str, str] | None) -> dict[str, Any]:
        """Return the summary's entries of the best and the last results.

        Args:
            measure: the run's measure, as the manifest has it; None if it has none.
        """
        accuracies = [one for one in self.accuracies if not math.isnan(one)]
        entries = {
            "best_accuracy": max(accuracies, default=None),
            "final_accuracy": accuracies[-1] if accuracies else None,
            "final_loss": self.losses[-1] if self.losses else None,
        }
        if measure is None:
            return entries
        told = [one for one in self.measured if one is not None]
        known = [one for one in told if not math.isnan(one)]
        best = (max if measure["better"] == "higher" else min)(known, default=None)
        return entries | {"measure": {**measure, "best": best, "final": told[-1] if told else None}}


def _measure(plan: Plan) -> dict[str, str] | None:
    return None if plan.settings.measure is None else asdict(plan.settings.measure)


def manifest(plan: Plan) -> dict[str, Any]:
    """Return the content of a run directory's manifest at the start."""
    return {
        **plan_entries(plan),
        "workers": plan.settings.workers,
        "served": plan.served,
        "classes": _classes(plan),
        "links": link_records.unprobed(plan),
        "network": graph(plan.spec.network.graph),
        **_sysctls(plan),
        **({"measure": measure} if (measure := _measure(plan)) else {}),
        **({"exact": exact} if (exact := _exact(plan)) else {}),
        **({"energy": True} if plan.settings.is_metered else {}),
        "versions": versions(),
        "code": package_digest(),
        **({"plugins": plugins} if (plugins := plugin_digests(plan.spec)) else {}),
        **({"data": digest} if (digest := plan.settings.dataset_digest) else {}),
        "commit": commit(),
        "host": host(),
        **({"diagnostics": [asdict(one) for one in plan.diagnostics]} if plan.diagnostics else {}),
    }


def _sysctls(plan: Plan) -> dict[str, Any]:
    """Return the settings of an emulated run's devices that are not the kernel's own."""
    if plan.spec.engine == "simulation":
        return {}
    return {"sysctls": {**OF_ALL, **plan.spec.network.tcp_settings(OF_ROLES)}}


def _exact(plan: Plan) -> tuple[str, ...]:
    """Return the columns of the exact values that the run computes; none in an emulation."""
    section = plan.spec.simulation.exact
    return columns(section.gradient) if section and plan.spec.engine == "simulation" else ()


def graph(section: GraphSpec | None) -> dict[str, Any] | None:
    """Return the source of the graph of routers, and where they are if that is known; None without."""
    if section is None:
        return None
    return {"source": section.source, "positions": dict(graph_source.read(section).positions)}


def plan_entries(plan: AnyPlan) -> dict[str, Any]:
    """Return what both the summary and the manifest say of the plan."""
    return {
        "experiment": plan.spec.name,
        "algorithm": plan.label,
        "seed": plan.spec.seed,
        "engine": plan.spec.engine,
        "runtime": _runtime(plan),
        "clock": plan.spec.clock,
    }


def _classes(plan: Plan) -> list[dict[str, Any]]:
    """Return the device classes, or those by factors of times; empty if all devices are alike."""
    settings, classes = plan.settings, plan.spec.devices.classes
    if classes:
        names = [one.name for one in classes]
        of = list(settings.class_of)
    else:
        found = classes_of_run(settings)
        names, of = list(found.names), found.of_device.tolist()
        if len(names) == 1:
            return []
    return class_entries(names, of)


def class_entries(names: Sequence[str], of: Sequence[int]) -> list[dict[str, Any]]:
    """Return the manifest's entries of classes: ``of`` has the class of each device."""
    return [
        {"name": name, "devices": [number for number, own in enumerate(of) if own == i]}
        for i, name in enumerate(names)
    ]


def _runtime(plan: AnyPlan) -> str | None:
    """Return the devices' runtime, and for Docker how roles are launched; None for a simulation."""
    devices = plan.spec.devices
    if plan.spec.engine == "simulation":
        return None
    launched = devices.runtime == "docker" and isinstance(plan, Plan)
    return f"docker, {devices.launched}" if launched else devices.runtime


def goes_on_with(version: int) -> str:
    """Return what is said of a killed peer that is back with its parameters of a version."""
    if version:
        return f"goes on with its parameters of version {version:,}"
    return "begins with the initial parameters"
