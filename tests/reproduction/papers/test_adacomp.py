"""The AdaComp paper's own data: its experiments at every scale, and the model of its baseline."""

import pytest

from reproduction.papers.adacomp import PAPER
from reproduction.papers.adacomp.baseline import PICKLED, pickled_ingress
from reproduction.papers.adacomp.parts import EVEN, FIG3, PARTS, SELECTION, TABLE2
from reproduction.papers.adacomp.scales import FULL, QUICK, TINY
from reproduction.series import Scale
from tests.reproduction.conftest import spec_of

OF_FIG3 = ("fig1", "fig3", "fig3-per-tensor", "selection")
"""The files with Fig. 3's learning rate and waiting times."""
UPDATES = {"full": 250_000, "quick": 20_000, "tiny": 40}


def test_the_papers_baseline_is_its_460_gigabytes() -> None:
    assert PICKLED == 1_905_901
    assert pickled_ingress(250_000) / 2**30 == pytest.approx(459.7, abs=0.05)


@pytest.mark.parametrize("scale", PAPER.scales, ids=lambda scale: scale.name)
def test_each_experiment_file_has_the_papers_settings(scale: Scale) -> None:
    for part in PARTS:
        for series in part.series:
            spec = spec_of(series, scale, 2)
            assert spec.seed == 2
            assert spec.clock == "virtual"
            smaller = series.study.experiment.stem in OF_FIG3
            rate = 0.03 if smaller else 0.1
            assert (spec.training.batch_size, spec.training.learning_rate) == (10, rate)
            law = "gamma" if smaller or part is EVEN else "uniform"
            waiting = [getattr(spec.waiting, name, None) for name in ("distribution", "mean")]
            assert waiting == [law, 1.0]
            assert spec.evaluation.images is None
            assert spec.model.name == ("mlp" if part is TABLE2 else "cnn")
            assert spec.dataset.scaling == ("unit" if part is TABLE2 else "standardised")
            assert spec.training.updates == UPDATES[scale.name]


def test_lines_beside_fig3_differ_from_it_in_one_option() -> None:
    assert [one.name for one in SELECTION.series if one in FIG3.series] == [
        "asgd",
        "comp-asgd-0.01",
        "adacomp-0.01",
    ]
    options = {
        one.name: spec_of(one, FULL, 1).algorithms[0].model_dump(exclude={"label"})
        for one in SELECTION.series
    }
    random = options["comp-asgd-0.01"] | {"selection": "random"}
    assert options["comp-asgd-random"] == random != options["comp-asgd-0.01"]
    for ratio in (0.001, 0.0001):
        assert options[f"adacomp-{ratio}"] == options["adacomp-0.01"] | {"ratio": ratio}


def test_half_of_the_workers_crash_at_every_scale() -> None:
    for scale, probability in ((FULL, 0.0004), (QUICK, 0.005), (TINY, 0.125)):
        spec = spec_of(TABLE2.series[1], scale, 1)
        assert "crashes" in spec.name
        assert getattr(spec.faults[0].when, "probability", None) == pytest.approx(probability)
