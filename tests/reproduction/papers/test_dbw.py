"""The DBW paper's own data: its experiments at every scale, its claims, and a tiny run of a figure."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reproduction.__main__ import main
from reproduction.diagnosed import Diagnosed
from reproduction.drawing import Beside, Boxes, draw
from reproduction.measures import Line, Target
from reproduction.papers.dbw import PAPER, knee, lines
from reproduction.papers.dbw.__main__ import main as write_knees
from reproduction.papers.dbw.claims import BestStatic, Follows, Outweighs, Similar, WithinTime
from reproduction.papers.dbw.decrease import Decreases, bounds, decreases, proportional
from reproduction.papers.dbw.expected_times import Compared, Estimates, estimates, exact_times
from reproduction.papers.dbw.scales import CPU, PAPER_SCALE, TINY
from reproduction.races import AtLeastAsFast, TimesFaster
from reproduction.record import Evaluated, Record, Result
from reproduction.records import Records
from reproduction.runs import Folder, Setting, identity, of_lines
from reproduction.series import Series
from reproduction.significance import Decision
from testbed.errors import SpecError
from testbed.experiment.spec import Spec
from tests.reproduction.conftest import spec_of

LOSS = Target(0.2, "training_loss")
RESULT = Result(
    engine="simulator",
    cpus=None,
    cpu=None,
    wall_seconds=None,
    updates_per_second=None,
    wire="",
    modelled=True,
    parameters_sha256="",
    workers=16,
    crashed=0,
    classes=(),
    commit="",
)


def line(series: Series, spec: Spec, seconds: float, *, seeds: int = 3, k: float = 4) -> Line:
    """Make a line whose loss falls from 0.4 by 0.1 in ``seconds`` seconds, and reaches 0.2 in twice."""
    runs = []
    for seed in range(1, seeds + 1):
        time = seconds * np.arange(4.0)
        loss = np.array([0.4, 0.3, 0.2, 0.1])
        counts = np.arange(4)
        exact = {"training_loss": loss, "gradient_norm": loss}
        known = Evaluated(counts, loss, np.arange(4.0), np.arange(4.0), time, loss, exact)
        values = {"k": np.full(4, k), "norm": 1.1 * np.array([0.4, 0.4, 0.3, 0.2])}
        runs.append(
            Record(spec.model_copy(update={"seed": seed}), RESULT, known, Diagnosed(counts, values))
        )
    return Line(series, tuple(runs))


@pytest.fixture(scope="module")
def fig6() -> dict[str, Line]:
    """Lines at α = 1, of which DBW takes 20 s to the loss and the static ones 60, 80 and 100 s."""
    seconds = {"dbw-1": 10.0, "static-1-8": 30.0, "static-1-12": 40.0, "static-1-16": 50.0}
    series = [one for one in lines.FIG6 if one.name in seconds]
    spec = spec_of(lines.FIG3[0], TINY, 1)
    return {one.name: line(one, spec, seconds[one.name]) for one in series}


STATIC = {8: "static-1-8", 12: "static-1-12", 16: "static-1-16"}


def test_the_runs_have_the_papers_settings() -> None:
    series = [*lines.FIG4, *lines.FIG3, *lines.FIG9]
    found = of_lines(series, Setting(CPU, (2,)))
    for one in found:
        assert one.run.spec.seed == 2
        assert one.run.spec.training.batch_size == 500
        assert one.run.spec.devices.workers == (5 if one.series in lines.FIG3 else 16)
    dbw, eight = (found[place].run.spec for place in (0, 2))
    assert dbw.training.learning_rate == 16 * 0.005
    (static,) = eight.algorithms
    assert (getattr(static, "wait_for", 0), getattr(static, "rate_rule", "")) == (8, "proportional")
    # As many gradients, and evaluations as far apart in gradients.
    assert (dbw.training.updates, eight.training.updates) == (200, 400)
    assert (dbw.evaluation.every, eight.evaluation.every) == (1, 2)


def test_the_knee_is_the_smallest_of_the_best_rates(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert knee.knee({0.02: 2.0, 0.04: 1.05, 0.08: 1.0, 0.16: float("nan")}) == 0.04
    assert knee.knee({0.02: 2.0, 0.04: 1.2, 0.08: 1.0}) == 0.08
    (tmp_path / "knee.json").write_text("{}")
    monkeypatch.setattr(knee, "FILE", tmp_path / "knee.json")
    with pytest.raises(SpecError, match="run `make dbw-knee` first"):
        knee.rate(500, 16)


def test_the_knees_of_a_scale_for_tests_are_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(knee, "FILE", tmp_path / "knee.json")
    for scale, kept in ((TINY, False), (CPU, True)):
        write_knees(str(tmp_path), scale.name)
        assert knee.FILE.exists() == kept
    assert "stays as it is, since tiny is for tests" in capsys.readouterr().out


def test_dbw_has_the_knee_of_waiting_for_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(knee, "FILE", tmp_path / "knee.json")

    def rates() -> dict[str, float]:
        dynamic = [one for one in lines.FIG8 if "wait_for" not in str(one.values)]
        found = of_lines(dynamic, Setting(CPU, (1,)))
        return {one.series.name: one.run.spec.training.learning_rate for one in found}

    knee.FILE.write_text("{}")
    assert set(rates().values()) == {0.08}
    knee.FILE.write_text('{"500/16": 0.16, "500/1": 0.02}')
    expected = {name: 0.16 if name.endswith("-500") else 0.08 for name in rates()}
    assert rates() == expected and len(expected) == 6


def test_an_estimate_is_drawn_beside_the_exact_value(fig6: dict[str, Line], tmp_path: Path) -> None:
    panel = Beside("dbw-1", {"norm": "estimate", "gradient_norm": "exact"}, "")
    assert draw((panel,), fig6, tmp_path / "beside") is not None
    none = fig6 | {"dbw-1": replace(fig6["dbw-1"], runs=())}
    assert draw((panel,), none, tmp_path / "none") is None


def test_claims_hold_and_fail_seed_by_seed(fig6: dict[str, Line]) -> None:
    text = "faster"
    others = tuple(STATIC.values())
    assert BestStatic(8, STATIC, LOSS, "").check(fig6).decision is Decision.HOLDS
    assert BestStatic(12, STATIC, LOSS, "").check(fig6).decision is Decision.FAILS
    assert AtLeastAsFast("dbw-1", others, LOSS, text).check(fig6).decision is Decision.HOLDS
    assert (
        AtLeastAsFast("static-1-12", ("static-1-8",), LOSS, text).check(fig6).decision
        is Decision.FAILS
    )
    # A factor is two-sided: 3 times faster is near 3, and neither near 1.5 nor near 9.
    for factor, decision in ((3, Decision.HOLDS), (1.5, Decision.FAILS), (9, Decision.FAILS)):
        found = TimesFaster("dbw-1", others, LOSS, factor, text).check(fig6)
        assert found.decision is decision
    # 80 and 60 s: 1.1 times is near, and yet the line is not the faster one.
    slower = TimesFaster("static-1-12", ("static-1-8",), LOSS, 1.1, text)
    assert slower.check(fig6).decision is Decision.FAILS
    assert WithinTime("dbw-1", "k", 0, 15, 3.5, 4.5, "").check(fig6).decision is Decision.HOLDS
    assert WithinTime("dbw-1", "k", 0, 15, 7.5, 8.5, "").check(fig6).decision is Decision.FAILS
    assert Follows("dbw-1", "norm", "gradient_norm", "").check(fig6).decision is Decision.HOLDS
    # 20 s, and 60 s of the best static one.
    assert AtLeastAsFast("dbw-1", others, LOSS, "", 1.25).check(fig6).decision is Decision.HOLDS
    assert (
        AtLeastAsFast("static-1-12", ("static-1-8",), LOSS, "", 1.25).check(fig6).decision
        is Decision.FAILS
    )
    assert (
        AtLeastAsFast("static-1-12", ("static-1-8",), LOSS, "", 1.4).check(fig6).decision
        is Decision.HOLDS
    )
    # 60 and 80 s, and 20 and 60 s.
    near, far = (Similar(one, "static-1-8", LOSS, "") for one in ("static-1-12", "dbw-1"))
    assert near.check(fig6).decision is Decision.HOLDS
    assert far.check(fig6).decision is Decision.FAILS
    same = ("gradient_norm", "training_loss")
    assert Outweighs("dbw-1", *same, 0.9, "").check(fig6).decision is Decision.HOLDS
    assert Outweighs("dbw-1", *same, 2, "").check(fig6).decision is Decision.FAILS


def test_an_expected_decrease_is_compared_with_that_of_the_same_updates(
    fig6: dict[str, Line], tmp_path: Path
) -> None:
    """The loss falls by 0.1 in each of three updates, and by 0.05 more in the last."""
    (run, *_) = fig6["dbw-1"].runs
    loss = {"training_loss": np.array([0.4, 0.3, 0.2, 0.05])}

    def with_gain(*gain: float) -> dict[str, Line]:
        estimates = Diagnosed(np.arange(1, 4), {"gain": np.array(gain)})
        known = replace(run.evaluations, exact=loss)
        each = tuple(
            replace(one, evaluations=known, diagnostics=estimates) for one in fig6["dbw-1"].runs
        )
        return {"dbw": replace(fig6["dbw-1"], runs=each)}

    half = with_gain(0.05, 0.05, 0.075)
    found = decreases(half["dbw"].runs[0])
    assert found is not None
    updates, expected, seen = found
    assert updates.tolist() == [1, 2, 3] and expected.tolist() == [0.05, 0.05, 0.075]
    assert seen == pytest.approx([0.1, 0.1, 0.15])
    assert bounds("dbw").check(half).decision is Decision.HOLDS
    assert proportional("dbw").check(half).decision is Decision.HOLDS
    reverse = with_gain(np.nan, 0.2, 0.1)
    assert bounds("dbw").check(reverse).decision is Decision.FAILS
    assert proportional("dbw").check(reverse).decision is Decision.FAILS
    assert draw((Decreases("dbw"),), half, tmp_path / "decreases") is not None
    none = {"dbw": replace(half["dbw"], runs=())}
    assert bounds("dbw").check(none).decision is Decision.UNKNOWN
    assert draw((Decreases("dbw"),), none, tmp_path / "none") is None


def test_the_papers_scale_has_the_papers_targets() -> None:
    at_cpu, at_paper = (
        {one.name: one for one in PAPER.parts_of(scale)} for scale in (CPU, PAPER_SCALE)
    )
    assert list(at_cpu) == list(at_paper)
    for name, here, theirs in (("fig5", "40 %", "80 %"), ("fig10", "loss 0.2", "loss 0.07")):
        for part, target in ((at_cpu[name], here), (at_paper[name], theirs)):
            none = {one.name: Line(one, ()) for one in part.series}
            texts = [verdict.text for verdict in part.check(none, CPU)]
            assert texts and all(target in text for text in texts)
        assert "Here" in at_cpu[name].shows and "Here" not in at_paper[name].shows


def test_a_claim_without_its_runs_is_not_measured(fig6: dict[str, Line]) -> None:
    none = {name: replace(one, runs=()) for name, one in fig6.items()}
    few = {**none, **{name: fig6[name] for name in ("static-1-8", "static-1-16")}}
    assert BestStatic(8, STATIC, LOSS, "").check(few).decision is Decision.UNKNOWN
    assert (
        AtLeastAsFast("dbw-1", tuple(STATIC.values()), LOSS, "").check(few).decision
        is Decision.UNKNOWN
    )
    # Nor is one whose line is compared with several others, of which one has no runs.
    some = {**fig6, "static-1-12": none["static-1-12"]}
    for claim in (
        AtLeastAsFast("dbw-1", tuple(STATIC.values()), LOSS, ""),
        TimesFaster("dbw-1", tuple(STATIC.values()), LOSS, 3, ""),
    ):
        assert claim.check(fig6).decision is Decision.HOLDS
        assert claim.check(some).decision is Decision.UNKNOWN
    assert WithinTime("dbw-1", "k", 0, 15, 1, 2, "").check(none).decision is Decision.UNKNOWN
    assert Similar("dbw-1", "static-1-8", LOSS, "").check(none).decision is Decision.UNKNOWN
    assert (
        AtLeastAsFast("dbw-1", tuple(STATIC.values()), LOSS, "", 1.25).check(few).decision
        is Decision.UNKNOWN
    )
    assert (
        Outweighs("dbw-1", "gradient_norm", "training_loss", 1, "").check(none).decision
        is Decision.UNKNOWN
    )


def test_a_share_of_the_time_is_one_of_each_run(fig6: dict[str, Line]) -> None:
    """k is 16 until the last update, at 30 s of one run and at 150 s of the other."""
    k = Diagnosed(np.arange(4), {"k": np.array([16.0, 16.0, 16.0, 8.0])})
    both = (fig6["dbw-1"].runs[0], fig6["static-1-16"].runs[1])
    line = replace(fig6["dbw-1"], runs=tuple(replace(run, diagnostics=k) for run in both))
    found = WithinTime("dbw-1", "k", 0.3, 0.9, 15, 17, "", shares=True).check({"dbw-1": line})
    assert (found.measured, found.decision) == ("k 16.0, 16.0", Decision.HOLDS)


def test_seeds_are_compared_at_equal_times(fig6: dict[str, Line], tmp_path: Path) -> None:
    one = fig6["dbw-1"]
    assert one.seconds_to(LOSS) == {seed: pytest.approx(20) for seed in (1, 2, 3)}
    # Between two evaluations: halfway from 0.3, at 10 s, to 0.2, at 20 s.
    assert one.seconds_to(Target(0.25, "training_loss"))[1] == pytest.approx(15)
    assert one.seconds_to(Target(0.05, "training_loss")) == dict.fromkeys((1, 2, 3), np.inf)
    slow = fig6["static-1-8"].runs[0]
    both = replace(one, runs=(one.runs[0], slow)).over_time(1, "training_loss")
    # Up to the end of the shorter run, 30 s, when the other has done a third of its own.
    assert both.costs["time"][-1] == 30
    assert both.values[:, -1] == pytest.approx([0.1, 0.3])
    boxes = Boxes({"a": {"DBW": "dbw-1"}}, lambda line: line.seconds_to(LOSS), "seconds")
    assert draw((boxes,), fig6, tmp_path / "boxes") is not None
    never = Boxes(boxes.groups, lambda line: line.seconds_to(Target(0.05, "training_loss")), "")
    assert draw((never,), fig6, tmp_path / "never") is None


def test_a_figure_is_run_and_written(tmp_path: Path) -> None:
    """Half of the workers slow down at 12 s; the record has what the page needs."""
    order = ["fig9", "--paper", "dbw", "--scale", "tiny", "--engine", "simulation"]
    assert main([*order, "--at-once", "1", "--only", "dbw-160s", "--out", str(tmp_path)]) == 0
    pages = tmp_path / "pages" / "tiny"
    page = (pages / "fig9.md").read_text()
    assert "| DBW, slow from 160 s |" in page
    assert (pages / "fig9.svg").exists()
    (record,) = Records(pages).of(identity(spec_of(lines.FIG9[0], TINY, 1)))
    assert list(record.evaluations.exact) == ["training_loss"]
    time, k = record.evaluations.time, record.diagnostics.values["k"]
    assert np.diff(time)[:12].tolist() == [1.0] * 12
    assert set(k[:12]) == {16.0}
    # A slow worker that computed while others were waited for ends that first.
    slow, fast = (np.diff(time)[13:][one] for one in (k[13:] > 8, k[13:] == 8))
    assert len(slow) and slow.min() == pytest.approx(5) and slow.max() < 10
    assert len(fast) and fast == pytest.approx(1)


def test_the_estimates_of_a_record_are_those_that_the_server_had(tmp_path: Path) -> None:
    """The run's diagnostics have T̂ of the k that was chosen: the one of 25 numbers that is compared."""
    order = ["fig3", "--paper", "dbw", "--scale", "tiny", "--engine", "simulation"]
    assert main([*order, "--at-once", "1", "--out", str(tmp_path)]) == 0
    pages = tmp_path / "pages" / "tiny"
    assert (pages / "fig3.svg").exists()
    key = identity(spec_of(lines.FIG3[0], TINY, 1))
    (record,) = Records(pages).of(key)
    found = estimates(record)
    assert found is not None
    (run,) = Folder(tmp_path).of(key)
    told = run.diagnostics
    assert found.k.tolist() == told["k"][1:].tolist() and len(set(found.k)) > 2
    chosen = found.fitted[np.arange(len(found.k)), found.k - 1]
    known = np.isfinite(told["seconds"][1:])
    assert known.sum() > 20
    assert chosen[known] == pytest.approx(told["seconds"][1:][known], rel=1e-5)
    # The first update waits for all: before the second there are samples t_{5,i} only.
    assert np.isfinite(found.naive[0]).tolist() == [False] * 4 + [True]
    assert found.naive[0, 4] == pytest.approx(record.evaluations.time[1])
    assert "## Estimates" in (pages / "fig3.md").read_text()


def test_the_exact_times_are_those_of_exponential_round_trips() -> None:
    """E[T(1)] of n = 2 is ∫ (1 + t)·exp(-2t) dt, as one of the two may begin late; E[T(n)] is H_n."""
    assert exact_times(2) == pytest.approx([0.75, 1.5], rel=0.01)
    assert exact_times(5)[-1] == pytest.approx(sum(1 / i for i in range(1, 6)), rel=0.01)
    assert (np.diff(exact_times(5)) > 0).all()


def test_averages_out_of_order_and_errors_are_counted_where_there_are_averages() -> None:
    exact = exact_times(2)
    nan = np.nan
    naive = np.array([[nan, 2.0], [0.5, 1.0], [2.5, 1.0], [nan, nan]]) * exact
    found = Estimates(np.array([2, 1, 1, 2]), naive, np.tile(exact * 1.25, (4, 1)))
    assert found.disordered() == 0.25
    assert found.gained() == pytest.approx(np.mean([1.0, 0.5, 0.0, 1.5, 0.0]) - 0.25)
    assert (
        Compared("dbw", "", Estimates.gained, 0.0, "")
        .check({"dbw": Line(lines.FIG3[0], ())})
        .decision
        is Decision.UNKNOWN
    )
