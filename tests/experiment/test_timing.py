"""``compute`` and ``waiting``: what is accepted, what is refused in which words, and the dump."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import SpecError
from testbed.experiment.load import dump, json_schema, load, load_resolved
from testbed.experiment.spec import Spec
from testbed.json_dataclasses import to_plain
from testbed.planning.plan import plan
from testbed.training import times
from testbed.training.settings import Settings

SMALL = """\
name: small
dataset: digits
model: cnn
training: {updates: 10}
algorithms: [asgd]
devices: {workers: 20}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "trace.csv").write_text("seconds\n0.5\n")
    return tmp_path / "small.yaml"


def read(file: Path, text: str, *overrides: str) -> Spec:
    file.write_text(SMALL + text)
    return load(file, overrides)


def refusal(file: Path, text: str, *overrides: str) -> str:
    with pytest.raises(SpecError) as caught:
        read(file, text, *overrides)
    return str(caught.value).removeprefix(f"{file}:")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("{}", {"distribution": "constant", "mean": 0}),
        ("{mean: 1s}", {"distribution": "constant", "mean": 1}),
        ("{distribution: uniform, mean: 100ms}", {"distribution": "uniform", "mean": 0.1}),
        (
            "{distribution: shifted-exponential, mean: 1s, alpha: 0.3}",
            {"distribution": "shifted-exponential", "mean": 1, "alpha": 0.3},
        ),
        (
            "{distribution: pareto, mean: 1s, shape: 2}",
            {"distribution": "pareto", "mean": 1, "shape": 2},
        ),
        (
            "{distribution: gamma, mean: 1s, variation: 0.5}",
            {"distribution": "gamma", "mean": 1, "variation": 0.5},
        ),
        (
            "{distribution: cvb, mean: 1s}",
            {"distribution": "cvb", "mean": 1, "task_variation": 0.1, "machine_variation": 0},
        ),
        (
            "{distribution: cvb, mean: 1s, task_variation: 0, machine_variation: 0.6}",
            {"distribution": "cvb", "mean": 1, "task_variation": 0, "machine_variation": 0.6},
        ),
        (
            "{mean: 1s, classes: [{share: 30%, factor: 1}, {share: 0.7, factor: 10}]}",
            {
                "distribution": "constant",
                "mean": 1,
                "classes": [{"share": 0.3, "factor": 1}, {"share": 0.7, "factor": 10}],
            },
        ),
        (
            "{mean: 1s, changes: [{at: 160s, share: 100%, factor: 5}]}",
            {
                "distribution": "constant",
                "mean": 1,
                "changes": [{"at": 160, "share": 1, "factor": 5}],
            },
        ),
    ],
)
def test_a_section_becomes_plain_numbers_that_durations_accept(
    file: Path, text: str, plain: dict[str, Any]
) -> None:
    spec = read(file, f"compute: {text}\n")
    assert json.loads(json.dumps(spec.compute.model_dump())) == plain
    (one,) = plan(spec)
    crossed = Settings.of_plain(json.loads(json.dumps(to_plain(one.settings))))
    assert crossed.times_of_kinds == one.settings.times_of_kinds == [(spec.compute, spec.waiting)]
    (durations,) = times.durations(replace(crossed, workers=20), "compute")
    expected = plain["mean"] * (7.3 if "classes" in plain else 1)
    assert durations.mean == pytest.approx(expected, rel=0.5 if "cvb" in text else 1e-9)
    assert load_written(file, spec) == spec


def load_written(file: Path, spec: Spec) -> Spec:
    resolved = file.parent / "spec.yaml"
    resolved.write_text(dump(spec))
    assert Spec.model_validate(yaml.safe_load(resolved.read_text())) == spec
    assert load(resolved) == spec
    return load_resolved(resolved)


def test_options_that_do_not_apply_are_not_dumped(file: Path) -> None:
    spec = read(
        file,
        "compute: {distribution: cvb, mean: 100ms, machine_variation: 0.6}\n"
        "waiting: {classes: [{share: 30%, factor: 1}, {share: 70%, factor: 10}]}\n",
    )
    assert (
        "compute: {distribution: cvb, mean: 100ms, task_variation: 0.1, machine_variation: 0.6}\n"
        "waiting:\n"
        "  distribution: exponential\n"
        "  mean: 0s\n"
        "  classes:\n"
        "  - {share: 30%, factor: 1.0}\n"
        "  - {share: 70%, factor: 10.0}\n"
    ) in dump(spec)


def test_a_trace_is_relative_to_the_file_or_in_options_to_the_cwd(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = file.parent / "here"
    here.mkdir()
    (here / "mine.csv").write_text("seconds\n2\n")
    monkeypatch.chdir(here)
    beside = "waiting: {distribution: trace, file: trace.csv}\n"
    spec = read(file, beside)
    found = str((file.parent / "trace.csv").resolve())
    assert spec.waiting.model_dump() == {
        "distribution": "trace",
        "file": found,
        "order": "sequence",
    }
    # An option's dataset does not change where the file's trace is sought.
    assert read(file, beside, "dataset=digits").waiting == spec.waiting
    mine = str(here / "mine.csv")
    assert read(file, beside, "waiting.file=mine.csv").waiting.model_dump()["file"] == mine
    option = "compute={distribution: trace, file: mine.csv, order: random}"
    both = read(file, beside, option)
    assert both.compute.model_dump() == {"distribution": "trace", "file": mine, "order": "random"}
    assert both.waiting == spec.waiting
    assert load_written(file, both) == both
    said = refusal(file, beside, "waiting.file=trace.csv")
    nowhere = here / "trace.csv"
    assert said == f"--set waiting.file=trace.csv: waiting.file: there is no file '{nowhere}'"


def test_a_resolved_spec_loads_without_its_trace(file: Path) -> None:
    spec = read(file, "waiting: {distribution: trace, file: trace.csv}\n")
    resolved = file.parent / "spec.yaml"
    resolved.write_text(dump(spec))
    (file.parent / "trace.csv").unlink()
    assert load_resolved(resolved) == spec
    with pytest.raises(SpecError, match=r"waiting\.file: there is no file '.*trace\.csv'"):
        load(resolved)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{distribution: gama}",
         ".distribution: 'gama' is not one of constant, uniform, exponential, shifted-exponential, "
         "pareto, gamma, cvb, trace; did you mean 'gamma'?"),
        ("{distribution: 3}", ".distribution: 3 is not one of constant, "),
        ("{mean: 50}", ".mean: '50' has no unit: "),
        ("{mean: -1s}", ".mean: '-1s' is not a duration: "),
        ("{meen: 1s}", ".meen: unknown key; did you mean 'mean'?"),
        ("{variatoin: 1}", ".variatoin: unknown key; did you mean 'variation'?"),
        ("{distribution: cvb, variatoin: 1}",
         ".variatoin: unknown key; did you mean 'task_variation'?"),
        ("{alpha: 0.5}",
         ".alpha: is an option of 'shifted-exponential', and the distribution is 'constant': remove "
         "it, or write `distribution: shifted-exponential`"),
        ("{distribution: gamma, variation: 1, task_variation: 0.1}",
         ".task_variation: is an option of 'cvb', and the distribution is 'gamma': "),
        ("{distribution: uniform, order: random}",
         ".order: is an option of 'trace', and the distribution is 'uniform': "),
        ("{distribution: pareto}",
         ".shape: is missing: 'pareto' needs it; for example `shape: 2.5`"),
        ("{distribution: trace}",
         ".file: is missing: 'trace' needs it; for example `file: trace.csv`"),
        ("{distribution: pareto, shape: 1}", ".shape: must be more than 1, not 1"),
        ("{distribution: pareto, shape: x}", ".shape: must be a number, not 'x'"),
        ("{distribution: pareto, shape: .nan}", ".shape: must be a finite number, not nan"),
        ("{distribution: shifted-exponential, alpha: 1.1}", ".alpha: must be at most 1, not 1.1"),
        ("{distribution: gamma, variation: 0}", ".variation: must be at least 0.001, not 0"),
        ("{distribution: cvb, machine_variation: 1e-9}",
         ".machine_variation: must be 0 or at least 0.001, not 1e-09"),
        ("{distribution: trace, file: nowhere.csv}", ".file: there is no file 'nowhere.csv'"),
        ("{distribution: trace, file: 3}", ".file: must be text, not 3: put it in quotes, '3'"),
        ("{distribution: trace, file: trace.csv, mean: 1s}",
         ".mean: is not an option of 'trace': remove it"),
        ("{distribution: trace, file: trace.csv, order: rnd}",
         ".order: 'rnd' is not one of sequence, random; did you mean 'random'?"),
        ("{classes: [{share: 30%, factor: 1}, {share: 40%, factor: 10}]}",
         ".classes: the shares add up to 70% and not to 100%"),
        ("{classes: [{share: 100%}]}", ".classes.0.factor: is missing; for example `factor: 10`"),
        ("{classes: [{share: 100%, factor: 0}]}", ".classes.0.factor: must be more than 0, not 0"),
        ("{classes: [{share: 101%, factor: 1}]}", ".classes.0.share: '101%' is not above 0 and at "),
        ("{classes: [{share: 0, factor: 1}]}", ".classes.0.share: '0' is not above 0 and at most 1"),
        ("{classes: [{shar: 1, share: 1, factor: 1}]}",
         ".classes.0.shar: unknown key; did you mean 'share'?"),
        ("{classes: 3}", ".classes: must be a list, not 3"),
        ("{classes: [3]}", ".classes.0: must be a mapping, not 3"),
        ("{changes: [{at: 160, share: 50%, factor: 5}]}", ".changes.0.at: '160' has no unit: "),
        ("{changes: [{share: 50%, factor: 5}]}",
         ".changes.0.at: is missing; for example `at: 160s`"),
    ],
)  # fmt: skip
def test_an_error_in_a_section_is_reported_with_its_line(file: Path, text: str, said: str) -> None:
    (line,) = refusal(file, f"compute: {text}\n").splitlines()
    assert line.startswith(f"7: compute{said}")


def test_an_error_in_an_option_names_the_option(file: Path) -> None:
    assert refusal(file, "", "waiting.alpha=1").startswith("--set waiting.alpha=1: waiting.alpha: ")


LAWS = st.one_of(
    st.fixed_dictionaries({"distribution": st.sampled_from(["constant", "uniform"])}),
    st.fixed_dictionaries(
        {"distribution": st.just("shifted-exponential"), "alpha": st.floats(0, 1)}
    ),
    st.fixed_dictionaries(
        {"distribution": st.just("pareto"), "shape": st.floats(1, 1000, exclude_min=True)}
    ),
    st.fixed_dictionaries({"distribution": st.just("gamma"), "variation": st.floats(0.001, 10)}),
    st.fixed_dictionaries(
        {"distribution": st.just("cvb")},
        optional={"task_variation": st.floats(0.001, 10), "machine_variation": st.just(0)},
    ),
)
SHARES = st.floats(0, 1, exclude_min=True)
FACTORS = st.floats(0, 1e6, exclude_min=True)
CHANGES = st.lists(
    st.builds(
        lambda at, share, factor: {"at": f"{at!r}s", "share": share, "factor": factor},
        st.floats(0, 1e6),
        SHARES,
        FACTORS,
    ),
    max_size=3,
)


@settings(deadline=None)  # the host may be busy
@given(LAWS, st.floats(0, 1e6), CHANGES, st.none() | st.tuples(SHARES, FACTORS, FACTORS))
def test_a_dumped_section_loads_as_an_equal_section(
    tmp_path_factory: pytest.TempPathFactory,
    law: dict[str, Any],
    mean: float,
    changes: list[Any],
    classes: tuple[float, float, float] | None,
) -> None:
    section: dict[str, Any] = law | {"mean": f"{mean!r}s", "changes": changes}
    if classes and classes[0] < 1:
        share, one, two = classes
        section["classes"] = [{"share": share, "factor": one}, {"share": 1 - share, "factor": two}]
    data = yaml.safe_load(SMALL) | {"waiting": section}
    spec = Spec.model_validate(data, strict=True)
    assert load_written(tmp_path_factory.getbasetemp() / "x.yaml", spec) == spec
    json.dumps(spec.waiting.model_dump(), allow_nan=False)


def test_the_schema_accepts_valid_sections_and_refuses_invalid_ones(file: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    validator = jsonschema.Draft202012Validator(json_schema())
    validator.check_schema(validator.schema)
    spec = read(
        file,
        "compute: {distribution: trace, file: trace.csv, changes: [{at: 1s, share: 1, factor: 2}]}\n"
        "waiting: {distribution: cvb, classes: [{share: 30%, factor: 1}, {share: 0.7, factor: 3}]}\n",
    )
    validator.validate(yaml.safe_load(file.read_text()))
    validator.validate(yaml.safe_load(dump(spec)))
    for right in ({}, {"mean": "1s"}, {"distribution": "gamma", "variation": 0.5}):
        validator.validate(yaml.safe_load(SMALL) | {"compute": right, "waiting": right})
    for wrong in (
        {"distribution": "gama"},
        {"distribution": "gamma"},
        {"distribution": "uniform", "alpha": 0.5},
        {"mean": 5},
        {"classes": [{"share": "30%"}]},
        {"classes": [{"share": "30%", "factor": 0}]},
        {"changes": [{"at": "1s", "share": 0, "factor": 2}]},
        {"changes": [{"at": "1s", "share": 1.5, "factor": 2}]},
    ):
        assert not validator.is_valid(yaml.safe_load(SMALL) | {"waiting": wrong}), wrong
