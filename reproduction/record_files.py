"""The two files that hold the records of a folder: ``runs.yaml`` and ``runs.csv``.

``runs.yaml`` has each experiment once, as its first run resolved it, and of each run its number, what
it has of its own (dotted keys, as ``--set`` takes them), and its result. ``runs.csv`` has a row for
each evaluation and for each mean of diagnostics over a part of a run, whose columns begin with
``mean_``: one for both if they are of the same iteration. What a row does not have is empty.
"""

import copy
import csv
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from reproduction.diagnosed import Diagnosed
from reproduction.record import COLUMNS, Evaluated, Record, Result
from testbed.errors import TestbedError
from testbed.experiment.load import dump
from testbed.experiment.spec import Spec

Tree: TypeAlias = dict[str, JsonValue]
Row: TypeAlias = dict[str, str]
_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MEAN = "mean_"
"""Before the names of diagnostics, some of which are those of other columns."""


class _Entry(BaseModel):
    """A run: its number in the table, its experiment, what it has of its own, and its result.

    Attributes:
        values: by dotted keys the values that differ from the experiment's.
        without: the dotted keys of the experiment that the run does not have.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    experiment: str
    values: Tree = {}
    without: list[str] = []
    result: Result


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    experiments: dict[str, Tree]
    runs: dict[str, _Entry]


def write(folder: Path, records: Mapping[str, Record]) -> None:
    """Write the records of a folder by their names, in their order.

    Raises:
        TestbedError: they cannot be written.
    """
    experiments: dict[str, Tree] = {}
    entries: dict[str, _Entry] = {}
    for number, (name, record) in enumerate(records.items(), 1):
        own = yaml.load(dump(record.spec), _LOADER)
        base = experiments.setdefault(record.spec.name, own)
        values, without = differences(base, own)
        entries[name] = _Entry(
            number=number,
            experiment=record.spec.name,
            values=values,
            without=without,
            result=record.result,
        )
    content = _File(experiments=experiments, runs=entries)
    text = yaml.dump(
        content.model_dump(mode="json", exclude_defaults=True),
        Dumper=yaml.SafeDumper,
        default_flow_style=None,
        sort_keys=False,
        allow_unicode=True,
        width=120,
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "runs.yaml").write_text(text, encoding="utf-8")
        with (folder / "runs.csv").open("w", encoding="utf-8", newline="") as file:
            rows = [row for at, one in enumerate(records.values(), 1) for row in _rows(at, one)]
            columns = dict.fromkeys(("run", *COLUMNS, *itertools.chain.from_iterable(rows)))
            # Means come last, whichever run has them first.
            headings = sorted(columns, key=lambda column: column.startswith(_MEAN))
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(headings)
            for row in rows:
                last = max(at for at, heading in enumerate(headings) if row.get(heading))
                writer.writerow([row.get(heading, "") for heading in headings[: last + 1]])
    except OSError as error:
        raise TestbedError(f"{folder} cannot be written ({error.strerror})") from error


def read(folder: Path) -> dict[str, Record]:
    """Read the records of a folder by their names; a folder without the files has none.

    Raises:
        TestbedError: a file cannot be read, or is not what ``write`` writes.
    """
    path = folder / "runs.yaml"
    if not path.exists():
        return {}
    try:
        content = _File.model_validate(yaml.load(path.read_bytes(), _LOADER))
        specs = {
            name: Spec.model_validate(
                with_own(content.experiments[entry.experiment], entry.values, entry.without),
                strict=True,
                context={},
            )
            for name, entry in content.runs.items()
        }
        path = folder / "runs.csv"
        rows = _read_rows(path)
        return {
            name: _record(specs[name], entry.result, rows.pop(entry.number, ()))
            for name, entry in content.runs.items()
        }
    except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError) as error:
        why = _first(error) if isinstance(error, ValidationError) else str(error)
        raise TestbedError(f"{path} holds no records of runs: {why}") from error


def _first(error: ValidationError) -> str:
    """Return the first problem of several."""
    problem = error.errors()[0]
    return ": ".join(filter(None, (".".join(map(str, problem["loc"])), problem["msg"])))


def _record(spec: Spec, result: Result, rows: Sequence[Row]) -> Record:
    """Return a record of its rows; raise ValueError if they are none."""
    if len(spec.algorithms) != 1:
        raise ValueError(f"a run of {spec.name} has {len(spec.algorithms)} algorithms")
    evaluated = [row for row in rows if any(row[name] for name in COLUMNS[1:])]
    if not evaluated:
        raise ValueError(f"a run of {spec.name} has no evaluation")
    columns: dict[str, Any] = {
        name: np.array(
            [row[name] or "nan" for row in evaluated],
            np.int64 if name == "iteration" else np.float64,
        )
        for name in COLUMNS
    }
    names = [name for name in rows[0] if name not in ("run", *COLUMNS)]
    exact = {
        name: np.array([row[name] for row in evaluated], np.float64)
        for name in names
        if not name.startswith(_MEAN) and evaluated[0][name]
    }
    diagnoses = [name for name in names if name.startswith(_MEAN)]
    means = [row for row in rows if any(row[name] for name in diagnoses)]
    diagnosed = Diagnosed()
    if means:
        diagnosed = Diagnosed(
            np.array([row["iteration"] for row in means], np.int64),
            {
                name.removeprefix(_MEAN): np.array([row[name] for row in means], np.float64)
                for name in diagnoses
                if means[0][name]
            },
        )
    return Record(spec, result, Evaluated(**columns, exact=exact), diagnosed)


def _rows(number: int, record: Record) -> Iterator[Row]:
    """Yield the rows of a run, by iteration: evaluations, and means of diagnostics up to there."""
    found: dict[str, Row] = {}
    evaluated, diagnosed = record.evaluations, record.diagnostics
    curve = {name: getattr(evaluated, name) for name in COLUMNS} | dict(evaluated.exact)
    means = {f"{_MEAN}{name}": values for name, values in diagnosed.values.items()}
    for columns in (curve, {"iteration": diagnosed.iteration, **means}):
        for values in zip(*(column.tolist() for column in columns.values()), strict=True):
            cells = (repr(value).removesuffix(".0") for value in values)
            row = dict(zip(columns, cells, strict=True))
            unknown = [name for name in COLUMNS if row.get(name) == "nan"]
            row |= dict.fromkeys(unknown, "")
            found.setdefault(row["iteration"], {"run": str(number)}).update(row)
    yield from sorted(found.values(), key=lambda row: int(row["iteration"]))


def _read_rows(path: Path) -> dict[int, list[Row]]:
    """Return the rows of each run by its number; raise ValueError if the file has another form."""
    found: dict[int, list[Row]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, restval="", strict=True)
        if tuple(reader.fieldnames or ())[: 1 + len(COLUMNS)] != ("run", *COLUMNS):
            raise ValueError(f"its first row is not {','.join(('run', *COLUMNS))}")
        for row in reader:
            found.setdefault(int(row["run"]), []).append(row)
    return found


def with_own(experiment: Tree, values: Tree, without: Sequence[str]) -> Tree:
    """Return a run's spec: that of its experiment, with what the run has of its own.

    Raises:
        LookupError, TypeError, ValueError: a dotted key leads nowhere.
    """
    tree = copy.deepcopy(experiment)
    for key, value in values.items():
        holder, last = _holder(tree, key)
        holder[last] = value
    for key in without:
        holder, last = _holder(tree, key)
        del holder[last]
    return tree


def differences(base: JsonValue, own: JsonValue, path: str = "") -> tuple[Tree, list[str]]:
    """Return by dotted keys what a run has of its own, and the keys that it does not have."""
    before, after = _children(base), _children(own)
    is_list = isinstance(own, list)
    if (
        before is None
        or after is None
        or is_list is not isinstance(base, list)
        or (is_list and len(before) != len(after))
    ):
        return ({} if base == own else {path: own}), []
    values: Tree = {}
    below = f"{path}." if path else ""
    without = [f"{below}{key}" for key in before if key not in after]
    for key, value in after.items():
        if key in before:
            further, absent = differences(before[key], value, f"{below}{key}")
            values |= further
            without += absent
        else:
            values[f"{below}{key}"] = value
    return values, without


def _children(node: JsonValue) -> Tree | None:
    """Return what is below a node by its key or place; None where a dotted key cannot lead there."""
    if isinstance(node, list):
        return {str(place): value for place, value in enumerate(node)}
    if isinstance(node, dict) and not any("." in key for key in node):
        return node
    return None


def _holder(tree: Tree, key: str) -> tuple[Any, str | int]:
    """Return the mapping or the list that has the value of a dotted key, and its key or place there."""
    node: Any = tree
    *steps, last = key.split(".")
    for step in steps:
        node = node[int(step) if isinstance(node, list) else step]
    return node, int(last) if isinstance(node, list) else last
