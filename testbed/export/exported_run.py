"""The exported content of a run: options, results, tables of values, and a digest of them all.

Names are those of the experiment file and the run directory: an option has the key that ``--set``
takes (``algorithms.0.ratio``), a result that of ``summary.json`` (``ingress.wire_bytes``), a column
that of its table (``accuracy``).
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.flattened import Scalar, flattened
from testbed.results.reading.curves import Curve
from testbed.results.reading.ingress import ingress_of
from testbed.results.reading.recorded_run import RecordedRun

Whole: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
_FORMAT = 2
"""Part of the digest: a version that exports something else replaces what an earlier one wrote."""
_RESULTS = {
    "updates", "best_accuracy", "final_accuracy", "final_loss", "measure", "ingress", "faults",
    "updates_per_second", "setup_seconds", "training_seconds", "host_seconds", "workers_lost",
    "utilisation",
}  # fmt: skip
"""The entries of a summary whose numbers are exported as results."""


@dataclass(frozen=True, slots=True)
class ValueTable:
    """Values, each a curve over every column of steps.

    Attributes:
        name: ``evaluations``, ``diagnostics`` or ``ingress``.
        steps: what the curves are drawn against, by column, shape (rows,).
        time: seconds since training began, by the run's clock, shape (rows,).
        values: by column, shape (rows,); a value that is not known is NaN.
    """

    name: str
    steps: Mapping[str, Whole]
    time: Floats
    values: Mapping[str, Floats]

    def tag(self, value: str, step: str) -> str:
        """Return the name of a curve in a tool, which groups curves by the part before ``/``."""
        if self.name == "evaluations":
            return f"{value}/by_{step}"
        return f"{self.name}/{value}"

    @property
    def columns(self) -> dict[str, Whole | Floats]:
        """All its columns, each once: iteration and time first, bytes last."""
        first = {name: column for name, column in self.steps.items() if name == "iteration"}
        return {**first, "time": self.time, **self.values, **self.steps}

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True)
class ExportedRun:
    """A run as it is exported, with its figures or without."""

    recorded: RecordedRun
    with_figures: bool = True

    @cached_property
    def options(self) -> dict[str, Scalar]:
        """Its experiment file, flattened, with label, engine, versions and the parameters' digest."""
        run = self.recorded
        manifest, digest = run.manifest, run.summary.parameters_sha256
        spec = run.spec if isinstance(run.spec, dict) else {}
        found = dict(flattened(spec))
        found |= {"seed": manifest.seed, "engine": manifest.engine, "clock": manifest.clock}
        found |= {
            "label": manifest.algorithm,
            "workers": manifest.workers,
            "host": manifest.host.name,
        }
        found |= {"testbed": manifest.versions.get("testbed", "")}
        found |= {"commit": manifest.commit} if manifest.commit else {}
        return found | ({"parameters_sha256": digest} if digest else {})

    @cached_property
    def results(self) -> dict[str, float]:
        """The numbers of its summary, and the mean staleness."""
        run = self.recorded
        content = run.summary.model_dump(mode="json", include=_RESULTS)
        found = {
            key: float(value)
            for key, value in flattened(content)
            if isinstance(value, int | float) and math.isfinite(value)
        }
        found["updates"] = found.pop("updates")  # tools show the first without being asked
        if len(run.staleness):
            found["staleness_mean"] = float(run.staleness.mean())
        return found

    @cached_property
    def tables(self) -> tuple[ValueTable, ...]:
        """Its tables that have a row. Raises NoRunError if a journal cannot be read."""
        found = (_evaluations(self.recorded), _diagnostics(self.recorded), _ingress(self.recorded))
        return tuple(table for table in found if len(table))

    @property
    def id(self) -> str:
        """The id ``experiment/time-seed/label``."""
        return self.recorded.id

    @property
    def folder(self) -> str:
        """The id as a path below another folder."""
        return self.id.strip("/")

    @property
    def title(self) -> str:
        """A name for people: the label and the seed."""
        return f"{self.recorded.algorithm}, seed {self.recorded.manifest.seed}"

    @property
    def began(self) -> float:
        """The time at which the run began, in seconds of the epoch."""
        return self.recorded.manifest.started.timestamp()

    @cached_property
    def identity(self) -> str:
        """16 hexadecimal digits that no other run has, the same however far the run is."""
        manifest = self.recorded.manifest
        text = f"{self.id} {manifest.started.isoformat()} {manifest.host.name}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that is exported, to see whether it has changed."""
        found = hashlib.sha256()
        words = [
            _FORMAT,
            dict(self.options),
            dict(self.results),
            self.recorded.ended,
            self.with_figures,
        ]
        found.update(json.dumps(words, sort_keys=True).encode())
        for table in self.tables:
            for name, column in table.columns.items():
                found.update(f"{table.name} {name}".encode() + column.tobytes())
        return found.hexdigest()


def _evaluations(run: RecordedRun) -> ValueTable:
    found = run.evaluations
    steps = {"iteration": found.iteration}
    for name in ("payload_bytes", "message_bytes", "wire_bytes"):
        counted = getattr(found, name)
        if np.isfinite(counted).all():  # only the wire bytes are known of programs of users
            steps[name] = counted.astype(np.int64)
    values = {"accuracy": found.accuracy, "loss": found.loss, **found.exact}
    if run.manifest.measure is not None and found.measured is not None:
        values[run.manifest.measure.name] = found.measured
    known = {name: one for name, one in values.items() if np.isfinite(one).any()}
    return ValueTable("evaluations", steps, found.time, known)


def _diagnostics(run: RecordedRun) -> ValueTable:
    values = run.diagnostics
    count = max(map(len, values.values()), default=0)
    iteration = np.arange(1, count + 1)
    versions, made = run.version_times
    time = np.interp(iteration, versions, made) if len(versions) else np.zeros(count)
    return ValueTable("diagnostics", {"iteration": iteration}, time, values)


def _ingress(run: RecordedRun) -> ValueTable:
    """Return bytes per second by kind, in at most some hundred parts of the run's time."""
    found = ingress_of(Curve(run.algorithm, (run,), run.quality))
    count = max(map(len, found.rates.values()), default=0)
    time = found.start + found.width * np.arange(count)
    rates = {f"{kind}_per_second": rate for kind, rate in found.rates.items()}
    return ValueTable("ingress", {"time": time}, time.astype(np.float64), rates)
