"""The course of a run as its directory records it, by the host's clock.

All times are seconds since training began. A value that the directory lacks (or has only for the end)
is None or empty, and is not exported.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from testbed.algorithms import ALGORITHMS, has
from testbed.device_names import BACKGROUND_NAME, peer_name, worker_name
from testbed.errors import SpecError
from testbed.experiment.sections.devices import DevicesSpec
from testbed.messages.fault_changes import AnyFaultChange
from testbed.messages.reports import Suspected, Welcomed
from testbed.results.reading.journals import (
    NoRunError,
    read_accounting,
    read_columns,
    version_times,
)
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.reading.run_files import Event, Summary
from testbed.runs.ledgers.ledgers import Ledgers
from testbed.telemetry.entries import EvaluationMade, FaultChanged, Noted, RunEntry
from testbed.telemetry.event_kinds import EventKind
from testbed.telemetry.update_rows import UPDATE
from testbed.units import UNLIMITED, parse_limit
from testbed.untrusted_text import parse_json, read_file
from traffic import TrafficError
from traffic.counters import COUNTS

_EVALUATION = ("iteration", "accuracy", "loss", "payload_bytes", "message_bytes", "wire_bytes")
Moments = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Recorded:
    """One run directory: its contents, and its resolved experiment file."""

    run: RecordedRun
    spec: dict[str, Any]

    @classmethod
    def of(cls, run: RecordedRun) -> "Recorded":
        """Read the run's resolved experiment file.

        Raises:
            SpecError: its ``spec.yaml`` is not there or cannot be read, or a version has written it
                whose events have no kinds.
        """
        if any(event.kind is None for event in run.events):
            by = run.manifest.versions.get("testbed", "an unknown version")
            commit = f", commit {run.manifest.commit[:12]}" if run.manifest.commit else ""
            raise SpecError(
                f"{run.id} was written by testbed {by}{commit}, whose events have no kinds: replay it "
                "with that version"
            )
        if run.manifest.programs:
            raise SpecError(f"{run.id} is of programs, which left no updates to replay")
        try:
            spec = run.spec
            for key in ("devices", "dataset", "model", "training", "network", "algorithms"):
                spec[key]
        except (TypeError, KeyError):
            raise SpecError(
                f"{run.directory / 'spec.yaml'} cannot be read: a run is replayed with its own"
            ) from None
        return cls(run, spec)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the workers or peers, by number."""
        name = worker_name if self.served else peer_name
        return tuple(map(name, range(self.run.manifest.workers)))

    @property
    def served(self) -> bool:
        """True if the run had a server. No code of a plug-in is executed for it."""
        if self.run.manifest.served is not None:
            return self.run.manifest.served
        # The manifest of an earlier version does not say it.
        name = self.spec["algorithms"][0]["name"]
        return has(name, "server") if name in ALGORITHMS else "peers" not in self.summary

    @cached_property
    def _devices(self) -> DevicesSpec | None:
        """The section on devices; None if another version wrote it in another form."""
        devices = self.spec["devices"]
        try:
            # Times follow laws that may be a plug-in's, whose code is not executed here.
            classes = [
                {key: value for key, value in one.items() if key not in ("compute", "waiting")}
                for one in devices.get("classes") or ()
            ]
            return DevicesSpec.model_validate({**devices, "classes": classes})
        except (ValidationError, TypeError, AttributeError):
            return None

    @property
    def device_classes(self) -> list[str]:
        """The name of each device's class; empty if there are no classes."""
        section = self._devices
        if section is None:
            return []
        return [section.classes[i].name for i in section.class_of(self.run.manifest.seed)]

    @property
    def uplink_rates(self) -> list[int | None]:
        """Each worker's uplink rate in bit/s; None if not shaped, or traced, or virtual."""
        if self.run.manifest.clock == "virtual":
            return [None] * len(self.names)
        text = self.spec["network"].get("uplink")
        of_all = None if text is None else parse_limit(text)
        trace = self.spec["network"].get("trace") or {}
        if "uplink" in (trace.get("content") or {}):  # in place of what a profile gives
            of_all = None
        section = self._devices
        if section is None or not section.classes:
            return [None if of_all == UNLIMITED else of_all] * len(self.names)
        of_class = [
            None if kind.trace and kind.trace.trace("uplink") else kind.of("uplink", of_all)
            for kind in section.classes
        ]
        of_class = [None if rate == UNLIMITED else rate for rate in of_class]
        return [of_class[i] for i in section.class_of(self.run.manifest.seed)]

    @cached_property
    def updates(self) -> npt.NDArray[np.void]:
        """Rows of ``telemetry.update_rows.UPDATE``, in order."""
        names = list(UPDATE.names or ())
        table = read_columns(self.run.directory, "updates", names)
        known = set(table.column_names)
        rows = np.zeros(table.num_rows, UPDATE)
        for name in names:
            if name in known:
                rows[name] = table.column(name).to_numpy(zero_copy_only=False)
        # Before the virtual clock, runs had one time; before drops, they applied every push.
        if "host_time" not in known:
            rows["host_time"] = rows["time"]
        if "applied" not in known:
            rows["applied"] = True
        return rows

    @cached_property
    def evaluated(self) -> Moments:
        """The moment, by the host's clock, at which the version of each evaluation was reached."""
        iterations = self.run.evaluations.iteration
        versions, times = version_times(
            *(self.updates[name] for name in ("iteration", "applied", "host_time"))
        )
        reached = np.append(times, np.inf)[np.searchsorted(versions, iterations)]
        return np.where(iterations == 0, 0.0, reached)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The contents of ``summary.json``; of a run that left none, a reconstruction."""
        try:
            path = self.run.directory / "summary.json"
            content: dict[str, Any] = parse_json(read_file(path))
            Summary.model_validate(content)
        except (OSError, ValueError):
            content = self.run.summary.model_dump(mode="json")
        return content

    @cached_property
    def ledgers(self) -> Sequence[Ledgers]:
        """The ledgers of the run's traffic, by server; none for a simulation."""
        try:
            return Ledgers.load_all(self.run.directory / "traffic")
        except TrafficError:
            return ()

    @cached_property
    def counters(self) -> dict[str, npt.NDArray[np.void]]:
        """Samples of ``traffic.counters.COUNTS`` by device, with times since training began.

        Empty if there are none, or if the moment at which training began is not known.
        """
        began = self.ledgers[0].began_monotonic if self.ledgers else None
        if began is None:
            return {}
        names = list(COUNTS.names or ())
        table = read_columns(self.run.directory / "traffic", "counters", ["device", *names])
        if not set(names) <= set(table.column_names):
            return {}
        rows = np.zeros(table.num_rows, COUNTS)
        for name in names:
            rows[name] = table.column(name).to_numpy(zero_copy_only=False)
        rows["time"] -= began
        devices = np.array(table.column("device").to_pylist())
        order = np.argsort(devices, kind="stable")
        found, first = np.unique(devices[order], return_index=True)
        return dict(zip(found.tolist(), np.split(rows[order], first[1:]), strict=True))

    @cached_property
    def entries(self) -> list[tuple[float, RunEntry]]:
        """The entries of the run's log but for updates and diagnostics, each with its moment."""
        found: list[tuple[float, RunEntry]] = [
            (
                one.host_time,
                FaultChanged(cast("AnyFaultChange", one.model_dump()), one.devices, one.host_time),
            )
            for one in self.run.fault_records
        ]
        found += ((moment, self._entry(event)) for moment, event in self._moments)
        evaluations = self.run.evaluations
        for place, moment in enumerate(self.evaluated.tolist()):
            row = {name: getattr(evaluations, name)[place].item() for name in _EVALUATION}
            if evaluations.measured is not None:
                row["measured"] = evaluations.measured[place].item()
            found.append((moment, EvaluationMade(row)))
        return sorted(found, key=lambda one: one[0])

    @cached_property
    def _moments(self) -> list[tuple[float, Event]]:
        """Every event with its moment; each session of the run has its own set-up."""
        sessions: list[list[Event]] = [[]]
        for event in self.run.events:
            if event.kind == EventKind.RESUMED:
                sessions.append([])
            sessions[-1].append(event)
        trained = [0.0, *(session.host_seconds for session in self.run.manifest.resumed)]
        found = []
        ended = 0.0
        for session, before in zip(sessions, trained, strict=False):
            # A simulation has no such event: it trains from the session's beginning.
            began = next((e.time for e in session if e.kind == EventKind.TRAINING_BEGAN), ended)
            found += [(before + event.time - began, event) for event in session]
            ended = session[-1].time if session else ended
        return found

    def _entry(self, event: Event) -> RunEntry:
        """Return the entry that an event is of; what only a person reads stays a sentence."""
        if event.kind in (EventKind.SUSPECTED, EventKind.WELCOMED) and event.device in self.names:
            number, unknown = self.names.index(event.device), math.nan
            if event.kind == EventKind.SUSPECTED:
                return Suspected(number, unknown, unknown, 0)
            return Welcomed(number, unknown, 0)
        kind = EventKind(event.kind) if event.kind in set(EventKind) else EventKind.REMARK
        return Noted(event.level, event.event, event.device, kind)

    def account(self, direction: str, column: str) -> tuple[Moments, npt.NDArray[np.int64]] | None:
        """Return the ends of the capture's seconds, and a column's sums until then; None without it."""
        try:
            table = read_accounting(self.run.directory)
        except (FileNotFoundError, NoRunError):
            return None
        own = np.array(table.column("device").to_pylist()) != BACKGROUND_NAME
        rows = np.flatnonzero(own & (np.array(table.column("direction").to_pylist()) == direction))
        seconds = table.column("second").to_numpy()[rows]
        values = table.column(column).to_numpy()[rows]
        order = np.argsort(seconds, kind="stable")
        return seconds[order] + 1.0, np.cumsum(values[order])


def read_execution(directory: Path) -> str:
    """Return the ``run`` label of a run directory: experiment and execution."""
    return "/".join(directory.parts[-3:-1])
