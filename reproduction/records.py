"""Records of runs, kept next to the pages: a run's spec, its result, its curve and its diagnostics.

Run directories are large and stay where they were made. A record is small enough to be committed, and
the pages are made of nothing else, so that a person who has the pages can make them again, and add a
run to them without having the others.
"""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, ValidationError

from reproduction.diagnosed import Diagnosed, thinned
from reproduction.runs import Folder, Identity, Needed, identity
from reproduction.series import Series
from testbed.errors import TestbedError
from testbed.experiment.load import dump, load_resolved
from testbed.experiment.spec import Spec
from testbed.experiment.sweep import text_of
from testbed.results.reading.faults import crashed
from testbed.results.reading.records import PartUse
from testbed.results.reading.run import Run
from testbed.results.tables.verdict import verdict

_COUNTS = ("iteration", "payload_bytes", "wire_bytes")
_LATER = ("time", "loss")
"""Columns that the first records lack."""
_COLUMNS = ("iteration", "accuracy", "payload_bytes", "wire_bytes", *_LATER)
_DIAGNOSTICS = "diagnostics.csv"
_DIGITS = 16
"""Digits that are kept of a digest: 64 bits."""
_COMMIT = 12


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The evaluations of a run, at least one; all of shape (evaluations,).

    Attributes:
        iteration: int64, updates applied.
        accuracy: float64, percent of the test set; NaN where it could not be measured.
        payload_bytes, wire_bytes: int64, ingress so far.
        time: float64, seconds since training began, by the run's clock; NaN in the first records.
        loss: float64, mean over the test set; NaN where it is not known.
        exact: float64, by name the exact values that the simulator computed, if it did.
    """

    iteration: npt.NDArray[np.int64]
    accuracy: npt.NDArray[np.float64]
    payload_bytes: npt.NDArray[np.int64]
    wire_bytes: npt.NDArray[np.int64]
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
    """The record of a complete run; its diagnostics are those that the algorithm reports, thinned."""

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


class Records:
    """The records in a folder of pages: at most one for each run and engine.

    Raises:
        SpecError: the spec of a record cannot be read.
        TestbedError: the rest of a record cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self._root = folder / "records"
        self._found: dict[tuple[Identity, str], tuple[str, Record]] = {}
        for path in sorted(self._root.glob("*/spec.yaml")):
            record = _read(path.parent)
            key = identity(record.spec), record.result.engine
            self._found[key] = path.parent.name, record

    def take(self, runs: Iterable[Needed], folder: Folder, suffix: str = "") -> None:
        """Record the newest complete run of each identity and engine, in place of an earlier record.

        Args:
            suffix: distinguishes the names of a scale's records.

        Raises:
            TestbedError: a record cannot be written.
        """
        for one in runs:
            newest: dict[str, Run] = {}
            for run in folder.of(one.identity):
                if len(run.evaluations):
                    newest.setdefault(engine(run), run)
            for name, run in newest.items():
                stem = f"{_stem(one.series)}{suffix}-seed{one.seed}-{name}"
                record = _of(run)
                _write(self._root / stem, record)
                self._found[one.identity, name] = stem, record

    def serves(self, key: Identity, engine: str) -> bool:
        """Return True if a record serves as the run; an emulation's engine needs measured bytes."""
        return any(engine == "simulation" or not one.simulated for one in self.of(key))

    def of(self, key: Identity) -> Sequence[Record]:
        """Return the records of a run, those of emulations first."""
        found = [record for (known, _), (_, record) in self._found.items() if known == key]
        return sorted(found, key=lambda record: record.simulated)

    def name(self, record: Record) -> str:
        """Return the name of a record's folder."""
        return self._found[identity(record.spec), record.result.engine][0]


def _stem(series: Series) -> str:
    """Return the beginning of a record's name: file, algorithm and the line's own values."""
    values = [f"{key}-{text_of(value)}" for key, value in series.values.items()]
    parts = (series.study.experiment.stem, series.label, *values)
    return "-".join(re.sub(r"[^\w.+-]+", "-", part) for part in parts)


def keep(run: Run, folder: Path) -> None:
    """Write the record of a run into a folder of its own.

    Raises:
        TestbedError: the record cannot be written.
    """
    _write(folder, _of(run))


def engine(run: Run) -> str:
    """Return ``simulator``, or the runtime of the devices, for a run."""
    if run.manifest.engine == "simulation":
        return "simulator"
    return load_resolved(run.directory / "spec.yaml").devices.runtime


def wall_seconds(run: Run) -> float | None:
    """Return the seconds of a run by the host's clock, without the time between its sessions."""
    manifest = run.manifest
    if manifest.finished is None:
        return run.summary.host_seconds
    if not manifest.resumed:
        return (manifest.finished - manifest.started).total_seconds()
    last = manifest.resumed[-1]
    return last.host_seconds + (manifest.finished - last.at).total_seconds()


def _of(run: Run) -> Record:
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
    columns = {name: getattr(evaluations, name) for name in _COLUMNS}
    curve = Evaluated(**columns, exact=evaluations.exact)
    return Record(spec, result, curve, thinned(run.diagnostics))


def _sent_by_class(run: Run, spec: Spec) -> tuple[ClassSent, ...]:
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


def _write(folder: Path, record: Record) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "result.json").write_text(
            record.result.model_dump_json(indent=2, exclude_defaults=True) + "\n", encoding="utf-8"
        )
        with (folder / "curve.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            exact = record.evaluations.exact
            writer.writerow((*_COLUMNS, *exact))
            columns = [getattr(record.evaluations, name).tolist() for name in _COLUMNS]
            columns += [[f"{value:.6g}" for value in values] for values in exact.values()]
            writer.writerows(zip(*columns, strict=True))
        record.diagnostics.write(folder / _DIAGNOSTICS)
        # Written last: a folder without it is not a record.
        (folder / "spec.yaml").write_text(dump(record.spec), encoding="utf-8")
    except OSError as error:
        raise TestbedError(f"{folder} cannot be written ({error.strerror})") from error


def _read(folder: Path) -> Record:
    spec = load_resolved(folder / "spec.yaml")
    if len(spec.algorithms) != 1:
        raise TestbedError(
            f"{folder}/spec.yaml is no run's: it has {len(spec.algorithms)} algorithms"
        )
    path = folder / "result.json"
    try:
        result = Result.model_validate_json(path.read_bytes())
        path = folder / "curve.csv"
        evaluations = _read_curve(path)
        path = folder / _DIAGNOSTICS
        diagnostics = Diagnosed.read(path)
    except (OSError, ValueError) as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise TestbedError(f"{path} is no part of a record: {why}; remove {folder}") from error
    return Record(spec, result, evaluations, diagnostics)


def _read_curve(path: Path) -> Evaluated:
    """Return the evaluations in a file; raise ValueError if it has another format."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        headings = tuple(next(rows, ()))
        own = headings[len(_COLUMNS) :]
        if headings != (*_COLUMNS, *own) and headings != _COLUMNS[: -len(_LATER)]:
            raise ValueError(f"its first row is not {','.join(_COLUMNS)}")
        columns = dict(zip(headings, zip(*rows, strict=True), strict=False))
    if not columns:
        raise ValueError("it has no evaluation")
    unknown = [float("nan")] * len(columns["iteration"])
    found: dict[str, Any] = {
        name: np.array(columns.get(name, unknown), np.int64 if name in _COUNTS else np.float64)
        for name in _COLUMNS
    }
    exact = {name: np.array(columns[name], np.float64) for name in own}
    return Evaluated(**found, exact=exact)
