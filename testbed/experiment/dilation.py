"""The same experiment with every time longer and every rate lower by one factor.

Times and rates are found by their types (``testbed.units``), wherever they are in a spec.
``PLAIN`` names the few that have no such type. What cannot be dilated, such as the times in a graph's
file, is refused.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from testbed.durations.traces import is_parquet
from testbed.errors import SpecError
from testbed.experiment.labels import labels
from testbed.experiment.load import AnySpec, dump, load_resolved
from testbed.experiment.sections.devices import DevicesSpec
from testbed.experiment.sections.faults import ByTrace
from testbed.experiment.sections.rate_traces import RateSteps
from testbed.experiment.sections.timing import TraceSpec
from testbed.experiment.spec import Spec
from testbed.trace_files import parse_seconds, read_rows
from testbed.units import parse_duration, parse_limit, parse_rate


class Unit(Enum):
    """The unit of a number: a time is multiplied by the factor, a rate is divided."""

    TIME = "time"
    RATE = "rate"


_PARSERS = {parse_duration: Unit.TIME, parse_rate: Unit.RATE, parse_limit: Unit.RATE}
PLAIN: Mapping[tuple[type[BaseModel], str], Unit] = {
    (RateSteps, "times"): Unit.TIME,
    (RateSteps, "period"): Unit.TIME,
    (RateSteps, "rates"): Unit.RATE,
}
"""The fields that are times or rates without being of such a type."""
FILES: Mapping[tuple[type[BaseModel], str], Sequence[str]] = {
    (TraceSpec, "file"): ("seconds",),
    (DevicesSpec, "presence"): ("time",),
    (ByTrace, "trace"): ("time", "lasting"),
}
"""The fields that name a file with times, and its columns that are times."""


def unit_of(section: type[BaseModel], name: str, field: FieldInfo) -> Unit | None:
    """Return what a field's numbers are; None if neither a time nor a rate."""
    for (kind, key), unit in PLAIN.items():
        if name == key and issubclass(section, kind):
            return unit
    return _of_metadata(field.metadata) or _of_annotation(field.annotation)


def _of_metadata(metadata: Sequence[Any]) -> Unit | None:
    for one in metadata:
        if isinstance(one, BeforeValidator) and one.func in _PARSERS:
            return _PARSERS[one.func]
    return None


def _of_annotation(annotation: Any) -> Unit | None:
    if unit := _of_metadata(getattr(annotation, "__metadata__", ())):
        return unit
    return next(filter(None, map(_of_annotation, get_args(annotation))), None)


def dilated(spec: AnySpec, factor: Fraction, folder: Path) -> Spec:
    """Return an experiment that differs from another only in its times and rates.

    Args:
        factor: by which times are multiplied and rates are divided.
        folder: gets the experiment's file, ``dilated.yaml``, and copies of traces with longer times.

    Raises:
        SpecError: it cannot be dilated, or a rate or a time is then no possible one.
    """
    if not isinstance(spec, Spec):
        raise SpecError(
            "programs: a program takes its own time, which cannot be made longer: only experiments "
            "with `algorithms` are dilated"
        )
    if spec.network.graph is not None:
        raise SpecError(
            "network.graph: the rates and delays of a graph are its file's, which is not dilated: take "
            "the graph out"
        )
    silence = None
    if "suspect_after" not in spec.devices.model_fields_set:
        silence = _default_silence(spec)
    folder.mkdir(parents=True, exist_ok=True)
    longer = _Dilation(factor, folder).section(spec)
    named = tuple(
        options.model_copy(update={"label": label})
        for options, label in zip(longer.algorithms, labels(spec.algorithms), strict=True)
    )
    changes: dict[str, object] = {"name": dilated_name(spec, factor), "algorithms": named}
    if silence is not None:
        update = {"suspect_after": silence * float(factor)}
        changes["devices"] = longer.devices.model_copy(update=update)
    path = folder / "dilated.yaml"
    path.write_text(dump(longer.model_copy(update=changes)), encoding="utf-8")
    return load_resolved(path)


def dilated_name(spec: AnySpec, factor: Fraction) -> str:
    """Return the name of a dilated experiment."""
    return f"{spec.name}-x{float(factor):.15g}"  # no exponent up to the greatest factor


def _default_silence(spec: Spec) -> float | None:
    """Return the seconds of silence after which a worker is suspected where the file has none."""
    found = {spec.suspect_after(options) for options in spec.algorithms}
    if len(found) > 1:
        raise SpecError(
            "devices.suspect_after: has another default for some of the algorithms than for others, so "
            "that no value fits all of them: write it, or dilate one algorithm at a time"
        )
    return found.pop()


def not_dilated(spec: Spec) -> Iterator[str]:
    """Yield what takes the same time in both experiments, under the wall clock."""
    yield "the kernel's TCP, whose timers are its own"
    both = [spec.times_of(one) for one in spec.devices.classes or (None,)]
    if not all(compute.takes_time for compute, _ in both):
        yield "computing, which has no law here: it must be short beside the waiting and the links"
    if spec.plugins:
        yield "options of plug-ins, whatever they mean"


class _Dilation:
    def __init__(self, factor: Fraction, folder: Path) -> None:
        self._factor, self._folder = factor, folder
        self._files: dict[tuple[str, Sequence[str]], str] = {}

    def section(self, section: Any) -> Any:
        """Return a section with other times and rates, in its sections, too."""
        kind = type(section)
        changed = {}
        for name, field in kind.model_fields.items():
            value = getattr(section, name)
            new = self._value(value, kind, name, field)
            if new is not value:
                changed[name] = new
        return section.model_copy(update=changed) if changed else section

    def _value(self, value: Any, kind: type[BaseModel], name: str, field: FieldInfo) -> Any:
        for (owner, key), columns in FILES.items():
            if name == key and issubclass(kind, owner) and value is not None:
                return self._file(value, columns)
        unit = unit_of(kind, name, field)
        return self._scaled(value, unit)

    def _scaled(self, value: Any, unit: Unit | None) -> Any:
        if isinstance(value, BaseModel):
            return self.section(value)
        if isinstance(value, tuple):
            return tuple(self._scaled(one, unit) for one in value)
        if unit is None or not isinstance(value, int | float):
            return value
        if unit is Unit.TIME:
            return float(value * self._factor) if value else value
        return round(value / self._factor)

    def _file(self, file: str, columns: Sequence[str]) -> str:
        known = (file, tuple(columns))
        if known not in self._files:
            path = self._folder / f"{len(self._files)}-{Path(file).name}"
            write_dilated(Path(file), path, columns, float(self._factor))
            self._files[known] = str(path.absolute())
        return self._files[known]


def write_dilated(source: Path, copy: Path, columns: Sequence[str], factor: float) -> None:
    """Write a trace with its times multiplied; an empty cell stays empty.

    Args:
        columns: those that are times, of which a trace need not have all.

    Raises:
        SpecError: the trace cannot be read, or a time is none.
    """
    try:
        if is_parquet(source):
            _write_parquet(source, copy, columns, factor)
            return
    except (OSError, pa.ArrowException) as error:
        raise SpecError(f"the trace {source} cannot be read: {error}") from error
    with copy.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        for where, row in read_rows(source, writer.writerow):
            writer.writerow(
                repr(parse_seconds(cell, where) * factor) if name in columns and cell else cell
                for name, cell in row.items()
            )


def _write_parquet(source: Path, copy: Path, columns: Sequence[str], factor: float) -> None:
    table = parquet.read_table(source)
    for at, name in enumerate(table.column_names):
        if name in columns:
            longer = pc.multiply(table.column(name).cast(pa.float64()), factor)
            table = table.set_column(at, name, longer)
    parquet.write_table(table, copy)
