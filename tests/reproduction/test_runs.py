"""The runs that the parts need, and which of the existing runs count as the same."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from reproduction.driver import ENGINES, Order
from reproduction.papers.adacomp import PAPER
from reproduction.papers.adacomp.parts import FIG1, FIG3, FIG4
from reproduction.papers.adacomp.scales import FULL, QUICK, TINY
from reproduction.runs import Folder, Setting, different, identity, of_lines
from reproduction.series import Key, Scale, Series, Study
from testbed.errors import SpecError
from testbed.experiment.load import load
from testbed.experiment.spec import Spec
from tests.reproduction.conftest import WriteRun, spec_of

ADACOMP = FIG3.series[-1]


def count(series: Sequence[Series], seeds: tuple[int, ...]) -> int:
    return len(different(of_lines(series, Setting(FULL, seeds))))


def test_a_run_that_two_figures_need_is_one() -> None:
    # 1 + 5 + 5 + 5 + 4 + 6 + 5 + 8 lines; Fig. 1, one of Fig. 4 and three of selection are Fig. 3's.
    assert count(PAPER.series_of(FULL), (1,)) == 34
    assert count(PAPER.series_of(FULL), (1, 2, 3)) == 102
    assert count(FIG1.series, (1,)) == 1


def test_a_setting_without_effect_on_the_result_makes_no_other_run() -> None:
    spec = spec_of(ADACOMP, FULL, 1)
    for change in (
        {"name": "other"},
        {"engine": "simulation"},
        {"devices": spec.devices.model_copy(update={"runtime": "docker", "launch": "fork"})},
        {"traffic": spec.traffic.model_copy(update={"capture": False})},
        {"algorithms": (spec.algorithms[0].model_copy(update={"label": "mine"}),)},
    ):
        assert identity(spec.model_copy(update=change)) == identity(spec), change


def test_a_setting_with_effect_on_the_result_makes_another_run() -> None:
    spec = spec_of(ADACOMP, FULL, 1)
    others: list[Spec] = [
        spec_of(ADACOMP, FULL, 2),
        spec_of(ADACOMP, QUICK, 1),
        spec_of(FIG3.series[-2], FULL, 1),
        spec_of(FIG4.series[2], FULL, 1),
        spec.model_copy(update={"pulls": "changed"}),
        spec.model_copy(update={"waiting": spec.waiting.model_copy(update={"mean": 2.0})}),
    ]
    assert len({identity(one) for one in (spec, *others)}) == 1 + len(others)


def test_a_setting_for_all_algorithms_equals_one_in_the_entry(tmp_path: Path) -> None:
    """The encoding is given at the top of the file, not in the algorithm's entry."""
    text = ADACOMP.study.experiment.read_text().replace(", encoding: compact-zstd", "")
    path = tmp_path / "fig3.yaml"
    path.write_text(f"{text}\nencoding: compact-zstd\n")
    run = load(path).runs()[ADACOMP.label]
    assert identity(run) == identity(spec_of(ADACOMP, Scale("as it is"), 1))


def test_emulations_come_first_and_simulations_do_not_replace_them(
    tmp_path: Path, write_run: WriteRun
) -> None:
    spec = spec_of(ADACOMP, TINY, 1)
    key = identity(spec)
    simulated = write_run(spec.model_copy(update={"engine": "simulation"}), [10.0, 20.0])
    folder = Folder(tmp_path / "runs")
    assert [run.directory for run in folder.of(key)] == [simulated]
    assert folder.serves(key, "simulation")
    assert not folder.serves(key, "docker")
    emulated = write_run(spec, [10.0, 20.0])
    write_run(spec, [10.0], "interrupted")
    folder = Folder(tmp_path / "runs")
    assert [run.directory for run in folder.of(key)] == [emulated, simulated]
    assert folder.serves(key, "docker") and folder.serves(key, "simulation")


def test_the_engine_changes_no_identity(tmp_path: Path) -> None:
    """Pages ask for runs without an engine, and find those of every engine."""
    for engine in ENGINES:
        order = Order(PAPER, (FIG3,), FULL, (1,), engine, tmp_path)
        (needed,) = (one for one in order.runs() if one.series == ADACOMP)
        assert needed.identity == identity(spec_of(ADACOMP, FULL, 1))
        spec = needed.run.spec
        assert engine in (spec.engine, spec.devices.runtime)
        assert spec.checkpoints.every == 25_000


def test_a_study_is_a_sweep_whose_scale_may_depend_on_the_swept_values() -> None:
    key = Key("devices.workers", (20, 40, 200), "n")
    study = Study(ADACOMP.study.experiment, (key,), ({"devices.workers": 20},))
    lines = study.lines({"asgd": "ASGD"}, {"asgd-40": 97.0})
    assert [(one.name, one.title, one.accuracy) for one in lines] == [
        ("asgd-40", "ASGD, n = 40", 97.0),
        ("asgd-200", "ASGD, n = 200", None),
    ]
    assert study.across("asgd", "devices.workers")[200] == "asgd-200"
    specs = [spec_of(one, TINY, 1) for one in lines]
    assert [one.devices.workers for one in specs] == [2, 10]
    excluded = replace(lines[0], values={"devices.workers": 20})
    (wrong,) = Study(ADACOMP.study.experiment).lines({"sgd": "SGD"})
    for line, missing in ((excluded, "asgd with devices.workers 20"), (wrong, "sgd")):
        with pytest.raises(SpecError, match=f"has no {missing}, of which the line {line.name} is"):
            spec_of(line, TINY, 1)
