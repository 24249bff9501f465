"""The Gap-Aware paper's own data: its experiments at every scale, its claims, and its times."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

from reproduction.__main__ import main
from reproduction.claims import Claim, Within
from reproduction.diagnosed import thinned
from reproduction.measures import Line, Lines
from reproduction.papers.gap_aware import PAPER
from reproduction.papers.gap_aware.claims import (
    Above,
    Below,
    Best,
    Ends,
    Falls,
    LosesMost,
    Times,
    over_training,
)
from reproduction.papers.gap_aware.parts import TABLE5
from reproduction.papers.gap_aware.published import TABLE4
from reproduction.papers.gap_aware.published import TABLE5 as PUBLISHED5
from reproduction.papers.gap_aware.scales import CPU, PAPER_SCALE
from reproduction.papers.gap_aware.times import MEAN, rate
from reproduction.record import Evaluated, Record, Result
from reproduction.runs import Needed, Setting, of_lines
from reproduction.series import Scale, Series
from reproduction.significance import Decision
from testbed.errors import SpecError
from testbed.execution import execute
from testbed.experiment.sections.learning import TransformerSpec
from testbed.experiment.spec import Spec
from testbed.results.reading.recorded_run import RecordedRun
from testbed.runs.watching import Unwatched

WORKERS, TASKS = 16, 40


def test_without_waiting_workers_are_n_times_as_fast_and_with_it_as_fast_as_the_slowest() -> None:
    asynchronous = rate("momentum-asgd", WORKERS, 0.0, TASKS, seed=1) * MEAN
    synchronous = rate("sync-sgd", WORKERS, 0.0, TASKS, seed=1) * MEAN
    assert asynchronous == pytest.approx(WORKERS, rel=0.03)
    # An update takes the longest of n gamma-distributed times: the integral of 1 − F(t)^n.
    law = stats.gamma(100, scale=1 / 100)
    longest, _ = integrate.quad(lambda t: 1 - law.cdf(t) ** WORKERS, 0, 3)
    assert synchronous == pytest.approx(WORKERS / longest, rel=0.03)


def test_synchronous_workers_are_as_fast_as_the_slowest_machine() -> None:
    asynchronous, synchronous = (
        rate(kind, WORKERS, 0.6, 10, seed=2) for kind in ("momentum-asgd", "sync-sgd")
    )
    assert 2 < asynchronous / synchronous < 6


def _needed(scale: Scale) -> list[Needed]:
    return of_lines(PAPER.series_of(scale), Setting(scale, (2,)))


@pytest.mark.parametrize("scale", [CPU, PAPER_SCALE], ids=lambda scale: scale.name)
def test_each_experiment_has_the_papers_settings(scale: Scale) -> None:
    for one in _needed(scale):
        spec, series = one.run.spec, one.series
        n = spec.devices.workers
        assert f"-{n}" in series.name and spec.seed == 2
        assert spec.training.schedule is not None and str(spec.partition.kind) == "stream"
        assert spec.compute is not None
        variation = spec.compute.model_dump()["machine_variation"]
        assert variation == (0.6 if series.name.endswith("-differing") else 0.0)
        if isinstance(spec.model, TransformerSpec):
            assert (spec.training.clip, spec.training.schedule.cosine_to) == (0.25, 0.0)
            continue
        assert spec.training.batch_size == 128 and spec.training.weight_decay == 0.0005
        assert spec.training.schedule.warm_up_from == 1 / n
        if "adam" not in series.label:
            assert spec.training.learning_rate == (0.01 if spec.model.name == "cnn" else 0.1)
        # The warm-up and the steps, as shares of all epochs.
        images = 60_000 if spec.dataset.name == "fashion-mnist" else 50_000
        epochs = spec.training.updates * 128 / images
        shape = [
            m / epochs for m in (spec.training.schedule.warm_up, *spec.training.schedule.milestones)
        ]
        wide = spec.model.name == "wide-resnet-16-4"
        expected = [5 / 200, 0.3, 0.6, 0.8] if wide else [5 / 160, 0.5, 0.75]
        if scale is CPU and spec.model.name == "resnet20":
            expected[0] = 5 / 16
        assert shape == pytest.approx(expected, rel=0.002)
        if scale is PAPER_SCALE:
            assert spec.dataset.name == "cifar10"
            assert epochs == (200 if wide else 160)


def test_the_papers_numbers_are_with_the_right_lines() -> None:
    assert (TABLE4["dana-ga-32"], TABLE4["nag-asgd-12"], TABLE4["sa-48"]) == (91.15, 10.0, 80.82)
    assert (PUBLISHED5["dana-4"], PUBLISHED5["asgd-48"], PUBLISHED5["ga-16"]) == (
        95.0,
        89.54,
        93.72,
    )


def test_a_part_of_another_scale_is_refused_with_its_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SpecError, match="not carried out at scale cpu: SCALE=paper"):
        PAPER.named("table5", CPU)
    with pytest.raises(SystemExit) as ended:
        main(["fig2", "--paper", "gap-aware", "--scale", "paper"])
    assert ended.value.code == 2
    assert (
        "fig2 of gap-aware is not carried out at scale paper: SCALE=cpu" in capsys.readouterr().err
    )


def _record(seed: int, accuracy: float, loss: float, gap: Sequence[float]) -> Record:
    iteration = np.array([0, 10])
    values = np.array([10.0, accuracy]), iteration, iteration, np.array([0.0, 1.0])
    curve = Evaluated(iteration, *values, np.array([5.0, loss]))
    diagnostics = thinned({"gap": np.array(gap), "delay": np.full(len(gap), 4.0)})
    (of_fig2,) = of_lines(PAPER.parts[0].series[:1], Setting(CPU, (seed,)))
    return Record(of_fig2.run.spec, Result.model_construct(), curve, diagnostics)


def _lines(**ends: Sequence[float]) -> Lines:
    """Return lines that end with an accuracy for each seed from 1; ``a_8`` is a-8."""
    found = {}
    for key, values in ends.items():
        name = key.replace("_", "-")
        series = Series(name, name, PAPER.parts[0].series[0].study, name)
        runs = [
            _record(seed, value, value / 10, np.linspace(value / 20, value / 20 - 1, 5).tolist())
            for seed, value in enumerate(values, 1)
        ]
        found[name] = Line(series, tuple(runs))
    return found


@pytest.fixture(scope="module")
def seeds() -> Lines:
    """Three seeds; b is ten points below a with each, and c is as often above a as below it."""
    return _lines(
        a_8=[80.0, 81.0, 80.5],
        b_8=[70.1, 71.0, 70.4],
        c_8=[79.0, 82.0, 80.6],
        a_32=[60.0, 61.0, 60.5],
        b_32=[65.2, 66.1, 65.7],
        low_8=[10.0, 10.0, 10.0],
        high_8=[14.0, 14.5, 14.2],
        low_32=[10.0, 10.0, 10.0],
        high_32=[10.0, 10.0, 10.0],
        one_8=[79.0],
        none=[],
    )


@pytest.mark.parametrize(
    ("claim", "decision"),
    [
        (Ends("a-8", "learns", least=75.0), Decision.HOLDS),
        (Ends("a-8", "learns", least=80.5), Decision.UNDECIDED),
        (Ends("b-8", "learns", least=75.0), Decision.FAILS),
        (Ends("a-8", "collapses", most=75.0), Decision.FAILS),
        (Ends("none", "learns", least=75.0), Decision.UNKNOWN),
        (Within("b-8", "a-8", 11.0, ""), Decision.HOLDS),
        (Within("b-8", "a-8", 9.0, ""), Decision.FAILS),
        (Within("b-8", "none", 9.0, ""), Decision.UNKNOWN),
        (Within("b-8", "a-8", 11.0, "", over_training), Decision.HOLDS),
        (Within("b-8", "a-8", 9.0, "", over_training), Decision.FAILS),
        (Best("a-8", ("a-8", "b-8", "a-32")), Decision.HOLDS),
        (Best("a-8", ("b-8", "c-8")), Decision.UNDECIDED),
        (Best("b-8", ("a-8", "c-8")), Decision.FAILS),
        (Best("a-8", ("b-8", "none")), Decision.UNKNOWN),
        (Best("a-8", ("c-8",), slack=5.0), Decision.HOLDS),
        (Above("a-8", "a-32"), Decision.HOLDS),
        (Above("a-8", "c-8"), Decision.UNDECIDED),
        (Above("b-8", "a-8"), Decision.FAILS),
        (Above("a-8", "none"), Decision.UNKNOWN),
        # With seed 1 alone: 1 point, and the interval of 10,000 images at 80 % is 1.12 points.
        (Above("a-8", "one-8"), Decision.UNDECIDED),
        (Above("one-8", "b-8"), Decision.HOLDS),
        # Neither has learnt anything.
        (Above("high-8", "low-8"), Decision.UNKNOWN),
        (Within("low-8", "high-8", 9.0, ""), Decision.UNKNOWN),
        (LosesMost("high", ("low",), 8, 32), Decision.UNKNOWN),
        (LosesMost("a", ("b",), 8, 32), Decision.HOLDS),
        (LosesMost("b", ("a",), 8, 32), Decision.FAILS),
        # Perplexities: e to the power of 8, and of 7.
        (Times("a-8", "b-8", "", least=2.0), Decision.HOLDS),
        (Times("a-8", "c-8", "", least=1.0), Decision.UNDECIDED),
        (Times("a-8", "b-8", "", most=2.0), Decision.FAILS),
        (Times("a-8", "one-8", "", least=0.5), Decision.UNDECIDED),
        (Falls("a-8", "gap"), Decision.HOLDS),
        (Falls("a-8", "delay"), Decision.UNDECIDED),  # a tie: it is the same throughout
        (Below("a-8", "gap", "a-8", "delay"), Decision.HOLDS),
        (Below("a-8", "gap", "b-8", "gap"), Decision.FAILS),
        (Below("a-8", "gap", "none", "gap"), Decision.UNKNOWN),
    ],
)
def test_a_claim_is_compared_with_the_seeds(claim: Claim, decision: Decision, seeds: Lines) -> None:
    verdict = claim.check(seeds)
    assert verdict.decision is decision, verdict
    assert (verdict.decisive is None) is (decision is Decision.UNKNOWN)


SOME = ("nag-asgd-1", "ga-8", "dana-ga-8", "ga-8-differing", "adam-ga-4")


def test_all_parts_are_carried_out_at_tiny_scale_and_have_their_pages(tmp_path: Path) -> None:
    def reproduce(what: str, *more: str) -> int:
        where = ("--out", str(tmp_path), "--scale", "tiny", "--engine", "simulation")
        return main([what, "--paper", "gap-aware", *where, *more])

    assert reproduce("all", "--only", ",".join(SOME), "--at-once", "1") == 0
    folder = tmp_path / "pages" / "tiny"
    page = {path.stem: path.read_text() for path in folder.glob("*.md")}
    figures = {"fig2", "fig3", "fig4", "fig7", "fig12", "fig13", "table2", "table4", "corollary1"}
    assert set(page) == {"README", *figures}
    assert page["fig4"].count("GA, N = 8: the gap falls over training | ") == 2
    assert "| GA, N = 8: the mean gap is below the delay | **undecided** |" in page["fig4"]
    assert "| **not measured** |" in page["fig2"] and "(1 seed) [91.21]" in page["table4"]
    assert "| Adam-GA, N = 4 | 26.48 | " in page["table2"]
    assert "| homogeneous | 1% | " in page["fig3"] and "| 4 | " in page["fig12"]
    assert "Only with SCALE=paper: Table 5" in page["README"]
    for name in figures - {"fig7"}:  # of 16 workers nothing is run here
        assert (folder / f"{name}.svg").stat().st_size > 5_000, name


def _short(spec: Spec) -> Sequence[str]:
    """Return the paper's own options, and others for a run of a few small mini-batches."""
    small = "dataset.name=digits training.updates=3 training.batch_size=2 evaluation.images=10"
    on_processor = ["simulation.device=cpu", "simulation.batched=true"]
    return [*PAPER_SCALE.options(spec), *on_processor, *small.split(), "evaluation.every=3"]


def test_the_papers_scale_runs(tmp_path: Path) -> None:
    lines = [one for one in TABLE5.series if one.name == "dana-ga-4"]
    (needed,) = of_lines(lines, Setting(Scale("paper", options=_short), (1,)))
    assert needed.run.spec.model.name == "wide-resnet-16-4"
    done = execute(needed.run.spec, tmp_path, lambda *_: Unwatched(), report=False)
    (run,) = done.directory.glob("*/diagnostics.parquet")
    assert len(RecordedRun.load(run.parent).diagnostics["gap"]) == 3
