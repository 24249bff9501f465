"""An experiment with longer times: every time and rate of a file, and its traces, are dilated."""

import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from testbed import execution
from testbed.algorithms.interface import Options
from testbed.errors import SpecError
from testbed.experiment.contents import Contents
from testbed.experiment.dilation import FILES, PLAIN, Unit, dilated, not_dilated, unit_of
from testbed.experiment.load import load, load_any
from testbed.experiment.program_contents import ProgramContents
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.tables.dilation_table import compared
from testbed.units import Duration, Limit, Rate
from tests.simulation.test_beyond import watch

FOUR = Fraction(4)
PATTERNS = {
    TypeAdapter(Duration).json_schema()["pattern"]: Unit.TIME,
    TypeAdapter(Rate).json_schema()["pattern"]: Unit.RATE,
    TypeAdapter(Limit).json_schema()["anyOf"][1]["pattern"]: Unit.RATE,
}
_NAMES = """
aggregator_ratio alpha average_over batch_size beta1 beta2 busy classes_per_worker clip compensation
context cosine_to cpus crop down elasticity epsilon error_decay every exchange_every factor
fetch_every file_size first fraction gap_decay growth heads idle images iteration layers
learning_rate level local_epochs local_steps loss machine_variation memory milestones momentum
number output partitions peer per_worker probability processors proximal push_every queue ratio
received seed send_queue sent servers shape share size sizes staleness_bound task_variation tcp test
time_samples total_size train_images up updates variation wait_for warm_up warm_up_from weight
weight_decay width workers
"""
NEITHER = frozenset(_NAMES.split())
"""The names of fields whose numbers are neither times nor rates of links."""


def is_declared(section: type[BaseModel]) -> bool:
    """Return True if a section stands in the testbed's code.

    Other tests of this process may have loaded plug-ins, or made sections of functions of their own.
    """
    module = section.__module__
    there = getattr(sys.modules[module], section.__name__, None)
    return there is section and module.startswith("testbed.")


def sections() -> Iterator[type[BaseModel]]:
    """Yield every section that a file may have, with those of all algorithms."""
    known: set[type[BaseModel]] = set()

    def reach(annotation: Any) -> Iterator[type[BaseModel]]:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            for one in (annotation, *annotation.__subclasses__()):
                if one in known or not is_declared(one):
                    continue
                known.add(one)
                yield one
                for field in one.model_fields.values():
                    yield from reach(field.annotation)
                yield from reach(one)
        for part in get_args(annotation):
            yield from reach(part)

    for top in (Contents, ProgramContents, Options):
        yield from reach(top)


def of_numbers(annotation: Any) -> bool:
    return annotation in (int, float) or any(map(of_numbers, get_args(annotation)))


def unit_in_schema(field: FieldInfo) -> Unit | None:
    """Return a field's unit by the text that its JSON Schema takes."""

    def found(schema: Any) -> Iterator[Unit]:
        if isinstance(schema, dict):
            if schema.get("pattern") in PATTERNS:
                yield PATTERNS[schema["pattern"]]
            for key, part in schema.items():
                if key != "$defs":
                    yield from found(part)
        elif isinstance(schema, list):
            for part in schema:
                yield from found(part)

    annotation: Any = field.annotation
    kind = TypeAdapter(annotation)
    units = [*found(kind.json_schema()), *found({"": [_schema_of(one) for one in field.metadata]})]
    return units[0] if units else None


def _schema_of(metadata: Any) -> Any:
    return getattr(metadata, "json_schema", None)


def test_every_number_of_a_file_is_a_time_a_rate_or_known_to_be_neither() -> None:
    times = rates = 0
    for section in sections():
        for name, field in section.model_fields.items():
            if not of_numbers(field.annotation):
                continue
            unit = unit_of(section, name, field)
            where = f"{section.__name__}.{name}"
            if unit is None:
                assert name in NEITHER, f"{where} is neither dilated nor known to need none"
                assert "seconds" not in (field.description or "").lower(), where
            elif (section, name) not in PLAIN:
                assert unit is unit_in_schema(field), where
            times += unit is Unit.TIME
            rates += unit is Unit.RATE
    assert times > 20
    assert rates > 10


def test_the_named_fields_are_there() -> None:
    for section, name in (*PLAIN, *FILES):
        assert name in section.model_fields


EXPERIMENT: dict[str, Any] = {
    "name": "small",
    "dataset": "digits",
    "model": "mlp",
    "clock": "virtual",
    "engine": "simulation",
    "training": {"updates": 60},
    "algorithms": ["asgd", {"name": "fedavg", "within": "500ms"}],
    "devices": {
        "workers": 5,
        "suspect_after": "3s",
        "classes": [
            {"name": "near", "share": "60%", "uplink": "8mbit", "delay": "3ms"},
            {"name": "far", "share": "40%", "trace": "rates.csv"},
        ],
        "presence": "presence.csv",
    },
    "network": {"uplink": "10mbit", "downlink": "50mbit", "delay": {"up": "12ms", "down": "3ms"}},
    "compute": {"distribution": "trace", "file": "computing.csv"},
    "waiting": {
        "distribution": "trace",
        "file": "waiting.parquet",
        "changes": [{"at": "1s", "share": "50%", "factor": 3}],
    },
    "evaluation": {"every": 20, "images": 100},
    "faults": [
        {"when": {"trace": "struck.csv"}, "how": "freeze"},
        {
            "who": {"number": 2},
            "when": {"time": "500ms"},
            "how": {"kind": "slow", "uplink": "1mbit"},
        },
    ],
}
TRACES = {
    "computing.csv": "seconds\n0.03125\n0.0625\n",
    "presence.csv": "device,time,event\nworker-4,0.25,arrives\nworker-4,2,leaves\n",
    "struck.csv": "time,device,lasting\n0.75,worker-0,0.5\n1,worker-1,0.25\n",
    "rates.csv": "time,uplink\n0,8mbit\n1.5,2mbit\n",
}


def written(folder: Path, **changes: Any) -> Path:
    for name, text in TRACES.items():
        (folder / name).write_text(text)
    pq.write_table(pa.table({"seconds": [0.125, 0.25, 0.5]}), folder / "waiting.parquet")
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(EXPERIMENT | changes))
    return path


def test_under_the_virtual_clock_time_over_the_factor_is_exact(tmp_path: Path) -> None:
    spec = load(written(tmp_path))
    longer = dilated(spec, FOUR, tmp_path / "made")
    assert longer.name == "small-x4"
    assert longer.devices.suspect_after == 12.0
    first, second = (
        execution.execute(one, tmp_path / "runs", watch, report=False) for one in (spec, longer)
    )
    for own, other in zip(first.summaries, second.summaries, strict=True):
        assert own["updates"] == 60
        assert own["faults"]["freeze"] == 2
        assert other["parameters_sha256"] == own["parameters_sha256"]
        assert other["training_seconds"] == 4 * own["training_seconds"] > 0
        original, slower = (
            RecordedRun.load(done.directory / summary["algorithm"])
            for done, summary in ((first, own), (second, other))
        )
        times = [run.pushes.column("time").to_numpy() for run in (original, slower)]
        assert (times[1] == 4 * times[0]).all()
        found = compared(original, slower, 4.0)
        assert found.greatest == (0.0, 0.0)
        assert found.agrees(0.0)
        assert all(point.value == point.dilated_value for point in found.points)


def test_a_default_of_seconds_is_longer_too(tmp_path: Path) -> None:
    path = written(tmp_path, algorithms=["sync-sgd"], devices={"workers": 5})
    assert dilated(load(path), Fraction(3), tmp_path / "made").devices.suspect_after == 90.0
    asynchronous = written(tmp_path, algorithms=["asgd"], devices={"workers": 5})
    devices = dilated(load(asynchronous), Fraction(3), tmp_path / "made").devices
    assert "suspect_after" not in devices.model_fields_set
    both = written(tmp_path, algorithms=["asgd", "sync-sgd"], devices={"workers": 5})
    with pytest.raises(SpecError, match=r"devices\.suspect_after: .* one algorithm at a time"):
        dilated(load(both), FOUR, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize("factor", ["1.0000001", "2.5", "999999.5", "1000000"])
def test_every_factor_makes_a_name(tmp_path: Path, factor: str) -> None:
    plain = {"network": {}, "devices": {"workers": 5}, "faults": []}
    spec = load(written(tmp_path, algorithms=["asgd"], **plain))
    longer = dilated(spec, Fraction(factor), tmp_path / "made")
    assert longer.name == f"{spec.name}-x{factor}"


def test_what_cannot_be_dilated_is_refused(tmp_path: Path) -> None:
    programs = tmp_path / "programs.yaml"
    programs.write_text("name: p\ndevices: {workers: 1}\nprograms: {a: {on: workers, run: echo}}\n")
    with pytest.raises(SpecError, match="a program takes its own time"):
        dilated(load_any(programs), FOUR, tmp_path / "made")
    graph = {"graph": {"topohub": "sndlib/germany50"}}
    with pytest.raises(SpecError, match=r"network\.graph: .* take the graph out"):
        dilated(load(written(tmp_path, network=graph)), FOUR, tmp_path / "made")
    slow = load(written(tmp_path, network={"uplink": "900bit"}))
    with pytest.raises(SpecError, match=r"225bit' is not a possible rate"):
        dilated(slow, FOUR, tmp_path / "made")


def test_what_is_not_longer_is_said(tmp_path: Path) -> None:
    said = list(not_dilated(load(written(tmp_path))))
    assert [one.partition(",")[0] for one in said] == ["the kernel's TCP"]
    without = load(written(tmp_path, compute={"distribution": "constant", "mean": "0s"}))
    assert any("no law" in one for one in not_dilated(without))
