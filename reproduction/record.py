"""The record of a run: its spec, its result, its curve and its diagnostics.

It has all that the pages show of a run, and is small enough to be committed; a run directory is large
and stays where it was made.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from reproduction.diagnosed import Diagnosed, thinned, to_digits
from testbed.experiment.load import load_resolved
from testbed.experiment.spec import Spec
from testbed.results.reading.recorded_faults import crashed
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.reading.run_files import PartUse
from testbed.results.tables.verdict import verdict

COLUMNS = ("iteration", "accuracy", "payload_bytes", "wire_bytes", "time", "loss")
"""The columns of every curve."""
Unshown: TypeAlias = Callable[[Spec], Sequence[str]]
"""Returns of a run's spec the columns that no page shows: its record does not have them."""
_DIGITS = 16
"""Digits that are kept of a digest: 64 bits."""
_COMMIT = 12


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The evaluations of a run, at least one; all of shape (evaluations,).

    Attributes:
        iteration: int64, updates applied.
        accuracy: float64, percent of the test set; NaN where it could not be measured.
        payload_bytes: float64, ingress so far; NaN where no page shows it.
        wire_bytes: float64, the same with all headers; NaN where no page shows it.
        time: float64, seconds since training began, by the run's clock; NaN in the first records.
        loss: float64, mean over the test set; NaN where it is not known.
        exact: float64, by name the exact values that the simulator computed, if it did.
    """

    iteration: npt.NDArray[np.int64]
    accuracy: npt.NDArray[np.float64]
    payload_bytes: npt.NDArray[np.float64]
    wire_bytes: npt.NDArray[np.float64]
    time: npt.NDArray[np.float64]
    loss: npt.NDArray[np.float64]
    exact: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.iteration)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ClassSent(_Part):
    """A device class: its name, the number of its workers and of their updates that were applied."""

    name: str
    workers: int
    updates: int


class Result(_Part):
    """The result of a run.

    Attributes:
        engine: ``simulator``, or the runtime of the emulation's devices.
        cpus, cpu: the number of the host's processors, and their model.
        wall_seconds: duration by the host's clock, without the time between a resumed run's sessions.
        updates_per_second: rate by the host's clock during training.
        wire: a few words that say whether wire bytes were counted or modelled.
        modelled: True if they were modelled.
        parameters_sha256: the first 16 digits; empty if unknown.
        workers, crashed: number of workers, and of those frozen or killed for good.
        classes: the device classes; empty if there are none.
        commit: the first 12 digits of the code's commit; empty if unknown.
        use: how busy processors and links were, by part; empty where a run did not tell.
    """

    engine: str
    cpus: int | None
    cpu: str | None
    wall_seconds: int | None
    updates_per_second: float | None
    wire: str
    modelled: bool
    parameters_sha256: str
    workers: int
    crashed: int
    classes: tuple[ClassSent, ...]
    commit: str
    use: dict[str, PartUse] = {}


@dataclass(frozen=True, slots=True)
class Record:
    """The record of a complete run; its diagnostics are those that a page shows, thinned."""

    spec: Spec
    result: Result
    evaluations: Evaluated
    diagnostics: Diagnosed = field(default_factory=Diagnosed)

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.spec.seed

    @property
    def simulated(self) -> bool:
        """True if the simulator carried it out, so that no bytes crossed a wire."""
        return self.result.engine == "simulator"


def record_of(
    run: RecordedRun,
    diagnostics: Collection[str] | None = None,
    unshown: Unshown = lambda _spec: (),
) -> Record:
    """Return the record of a complete run, with the diagnostics of some names, or with all."""
    manifest, summary, evaluations = run.manifest, run.summary, run.evaluations
    spec = load_resolved(run.directory / "spec.yaml")
    seconds = wall_seconds(run)
    result = Result(
        engine=engine(run),
        cpus=manifest.host.cpus,
        cpu=manifest.host.cpu,
        wall_seconds=None if seconds is None else round(seconds),
        updates_per_second=summary.updates_per_second,
        wire=verdict(run).text.partition(":")[0],
        modelled=bool(summary.traffic and summary.traffic.modelled),
        parameters_sha256=(summary.parameters_sha256 or "")[:_DIGITS],
        workers=manifest.workers,
        crashed=crashed(run.faults),
        classes=_sent_by_class(run, spec),
        commit=(manifest.commit or "")[:_COMMIT],
        use=summary.utilisation.parts if summary.utilisation else {},
    )
    columns = {name: getattr(evaluations, name) for name in COLUMNS}
    for name in ("payload_bytes", "wire_bytes"):
        columns[name] = columns[name].astype(np.float64)
    columns |= {name: np.round(columns[name], 6) for name in ("accuracy", "time")}
    columns["loss"] = to_digits(evaluations.loss, 7)
    columns |= {name: np.full(len(evaluations), np.nan) for name in unshown(spec)}
    exact = {name: to_digits(values, 6) for name, values in evaluations.exact.items()}
    reported = run.diagnostics
    if diagnostics is not None:
        reported = {name: column for name, column in reported.items() if name in diagnostics}
    return Record(spec, result, Evaluated(**columns, exact=exact), thinned(reported))


def engine(run: RecordedRun) -> str:
    """Return ``simulator``, or the runtime of the devices, for a run."""
    if run.manifest.engine == "simulation":
        return "simulator"
    return load_resolved(run.directory / "spec.yaml").devices.runtime


def wall_seconds(run: RecordedRun) -> float | None:
    """Return the seconds of a run by the host's clock, without the time between its sessions."""
    manifest = run.manifest
    if manifest.finished is None:
        return run.summary.host_seconds
    if not manifest.resumed:
        return (manifest.finished - manifest.started).total_seconds()
    last = manifest.resumed[-1]
    return last.host_seconds + (manifest.finished - last.at).total_seconds()


def _sent_by_class(run: RecordedRun, spec: Spec) -> tuple[ClassSent, ...]:
    names = [one.name or f"class {i}" for i, one in enumerate(spec.devices.classes)]
    if not names:
        return ()
    class_of = np.array(spec.devices.class_of(spec.seed))
    applied = run.pushes.column("applied").to_numpy(zero_copy_only=False).astype(bool)
    workers = run.pushes.column("worker").to_numpy()[applied]
    counts = np.bincount(class_of[workers], minlength=len(names))
    sizes = np.bincount(class_of, minlength=len(names))
    return tuple(
        ClassSent(name=name, workers=int(sizes[i]), updates=int(counts[i]))
        for i, name in enumerate(names)
    )
