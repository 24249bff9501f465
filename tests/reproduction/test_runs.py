"""The runs that the parts need, and which of the existing runs count as the same."""

from pathlib import Path

from reproduction.papers.adacomp import PAPER
from reproduction.papers.adacomp.parts import FIG1, FIG3, FIG4
from reproduction.papers.adacomp.scales import FULL, QUICK, TINY
from reproduction.runs import Folder, identity, wanted
from reproduction.series import Scale, load_run
from testbed.experiment.load import load
from testbed.experiment.spec import Spec
from tests.reproduction.conftest import WriteRun

ADACOMP = FIG3.series[-1]


def test_a_run_that_two_figures_need_is_one() -> None:
    # 1 + 5 + 5 + 5 + 4 + 5 + 8 lines; Fig. 1 and one of Fig. 4 are Fig. 3's ASGD and AdaComp.
    assert len(wanted(PAPER.series, FULL, (1,))) == 31
    assert len(wanted(PAPER.series, FULL, (1, 2, 3))) == 93
    assert len(wanted(FIG1.series, FULL, (1,))) == 1


def test_a_setting_without_effect_on_the_result_makes_no_other_run() -> None:
    spec = load_run(ADACOMP, FULL, 1)
    for change in (
        {"name": "other"},
        {"engine": "simulation"},
        {"devices": spec.devices.model_copy(update={"runtime": "docker", "launch": "fork"})},
        {"traffic": spec.traffic.model_copy(update={"capture": False})},
        {"algorithms": (spec.algorithms[0].model_copy(update={"label": "mine"}),)},
    ):
        assert identity(spec.model_copy(update=change)) == identity(spec), change


def test_a_setting_with_effect_on_the_result_makes_another_run() -> None:
    spec = load_run(ADACOMP, FULL, 1)
    others: list[Spec] = [
        load_run(ADACOMP, FULL, 2),
        load_run(ADACOMP, QUICK, 1),
        load_run(FIG3.series[-2], FULL, 1),
        load_run(FIG4.series[2], FULL, 1),
        spec.model_copy(update={"pulls": "changed"}),
        spec.model_copy(update={"waiting": spec.waiting.model_copy(update={"mean": 2.0})}),
    ]
    assert len({identity(one) for one in (spec, *others)}) == 1 + len(others)


def test_a_setting_for_all_algorithms_equals_one_in_the_entry(tmp_path: Path) -> None:
    """The encoding is given at the top of the file, not in the algorithm's entry."""
    text = ADACOMP.experiment.read_text().replace(", encoding: compact-zstd", "")
    path = tmp_path / "fig3.yaml"
    path.write_text(f"{text}\nencoding: compact-zstd\n")
    run = load(path).runs()[ADACOMP.label]
    assert identity(run) == identity(load_run(ADACOMP, Scale("as it is"), 1))


def test_emulations_come_first_and_simulations_do_not_replace_them(
    tmp_path: Path, write_run: WriteRun
) -> None:
    spec = load_run(ADACOMP, TINY, 1)
    key = identity(spec)
    simulated = write_run(spec.model_copy(update={"engine": "simulation"}), [10.0, 20.0])
    folder = Folder(tmp_path / "runs")
    assert [run.directory for run in folder.complete(key)] == [simulated]
    assert folder.serves(key, "simulation")
    assert not folder.serves(key, "docker")
    emulated = write_run(spec, [10.0, 20.0])
    broken = write_run(spec, [10.0], "interrupted")
    folder = Folder(tmp_path / "runs")
    assert [run.directory for run in folder.complete(key)] == [emulated, simulated]
    assert folder.serves(key, "docker") and folder.serves(key, "simulation")
    begun = folder.begun(key, "docker")
    assert begun is not None and begun.directory == broken
    assert folder.begun(key, "simulation") is None
