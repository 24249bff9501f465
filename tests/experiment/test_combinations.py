"""The sweep section: every combination is a spec, and a wrong one is refused before anything starts."""

from pathlib import Path

import pytest

from testbed.errors import SpecError
from testbed.experiment.combinations import by_algorithm, describe, load_sweep
from testbed.experiment.load import json_schema, load

FILE = """name: swept
dataset: digits
model: mlp
training: {updates: 30}
algorithms: [{name: adacomp, ratio: 0.5}]
devices: {workers: 3}
waiting: {distribution: constant, mean: 10ms}
sweep:
"""


def swept(tmp_path: Path, section: str) -> Path:
    path = tmp_path / "swept.yaml"
    path.write_text(FILE + section, encoding="utf-8")
    return path


def test_every_combination_is_a_spec_in_the_files_order(tmp_path: Path) -> None:
    section = "  seed: [1, 2]\n  algorithms.ratio: [0.1, 0.01]\n  waiting.mean: [200ms, 600ms]\n"
    sweep = load_sweep(swept(tmp_path, section))
    values = [tuple(point.values.values()) for point in sweep.points]
    assert values == [
        (seed, ratio, mean)
        for seed in (1, 2)
        for ratio in (0.1, 0.01)
        for mean in ("200ms", "600ms")
    ]
    assert describe(sweep.points[0].values) == "seed 1, algorithms.ratio 0.1, waiting.mean 200ms"
    path = swept(tmp_path, section)
    options = ["sweep=null", "algorithms.adacomp.ratio=0.01", "waiting.mean=600ms"]
    assert sweep.points[-1].spec == load(path, options, seed=2)


def test_excluded_combinations_are_left_out(tmp_path: Path) -> None:
    section = (
        "  seed: [1, 2, 3]\n  training.updates: [10, 20]\n"
        "  exclude: [{seed: [2, 3], training.updates: 20}]\n"
    )
    sweep = load_sweep(swept(tmp_path, section))
    assert [tuple(p.values.values()) for p in sweep.points] == [(1, 10), (1, 20), (2, 10), (3, 10)]


def test_an_option_replaces_the_files_value_and_a_swept_key_replaces_both(tmp_path: Path) -> None:
    path = swept(tmp_path, "  seed: [4, 5]\n")
    options = ["training.updates=7", "sweep.seed=[6]"]
    (point,) = load_sweep(path, options, seed=9).points
    assert (point.spec.seed, point.spec.training.updates) == (6, 7)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("  seed: 3\n", r"swept.yaml:9: sweep.seed: must be a list, not 3$"),
        ("  seed: []\n", r"swept.yaml:9: sweep.seed: is empty"),
        ("  []\n", r"swept.yaml:8: sweep: must be a mapping, not a list$"),
        ("  {}\n", r"swept.yaml:8: sweep: has no key: add one"),
        (
            "  trainig.updates: [1]\n",
            r":9: sweep: trainig.updates: 1: trainig: unknown key; did you",
        ),
        (
            "  seed: [1, x]\n",
            r":9: sweep: seed: x: seed: must be a whole number, not 'x' \(with seed x\)$",
        ),
        ("  algorithms.asgd.x: [1]\n", "algorithms.0.asgd: unknown key"),
        ("  seed..x: [1]\n", "'seed..x' is no key"),
        (
            "  seed: [1]\n  exclude: [{sed: 1}]\n",
            "exclude.0: 'sed' is not swept; did you mean 'seed'",
        ),
        ("  seed: [1]\n  exclude: [{seed: 2}]\n", "exclude.0: seed has no value 2: it has 1$"),
        ("  seed: [1]\n  exclude: [{}]\n", "exclude.0: is empty"),
        ("  seed: [1]\n  exclude: [{seed: 1}]\n", "sweep.exclude: leaves no run$"),
        ("  seed: [1, 2, 1]\n", r":9: sweep.seed: has 1 twice: give each value once$"),
    ],
)
def test_a_wrong_section_is_refused_with_its_line(
    tmp_path: Path, section: str, message: str
) -> None:
    with pytest.raises(SpecError, match=message) as raised:
        load_sweep(swept(tmp_path, section))
    assert len(str(raised.value).splitlines()) == 1


def test_values_that_do_not_go_together_are_named(tmp_path: Path) -> None:
    section = "  devices.workers: [2, 3]\n  clock: [wall, virtual]\n"
    path = swept(tmp_path, section + "  waiting.mean: [0s]\n")
    with pytest.raises(
        SpecError,
        match=r"clock: virtual: clock: nothing takes .* \(with devices.workers 2, clock virtual, w",
    ):
        load_sweep(path)


def test_other_commands_say_what_to_do(tmp_path: Path) -> None:
    path = swept(tmp_path, "  seed: [1, 2]\n")
    with pytest.raises(
        SpecError, match=r"swept.yaml:8: sweep: .*`testbed sweep .*swept.yaml` carr"
    ):
        load(path)
    assert load(path, ["sweep=null"]).sweep is None
    with pytest.raises(SpecError, match="has no sweep section: add one"):
        load_sweep(path, ["sweep=null"])


def test_the_schema_has_the_section(tmp_path: Path) -> None:
    schema = json_schema()
    section = schema["$defs"]["SweepSpec"]
    assert section["additionalProperties"]["type"] == "array"
    assert "testbed sweep" in schema["properties"]["sweep"]["description"]


def test_an_algorithm_has_a_name_that_its_swept_options_do_not_change(tmp_path: Path) -> None:
    path = swept(tmp_path, "  seed: [1]\n")
    options = ["algorithms=[asgd, {name: adacomp, ratio: 0.1}, {name: adacomp, ratio: 0.2}]"]
    (point,) = load_sweep(path, options).points
    named = [(name, label) for name, label, _ in by_algorithm(point.spec)]
    assert named == [("asgd", "asgd"), ("adacomp", "adacomp-0.1"), ("adacomp-2", "adacomp-0.2")]
