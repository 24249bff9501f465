"""The Ako paper's own data: its experiments at every scale, its claims, and a tiny run of a figure."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reproduction import record_files
from reproduction.__main__ import main
from reproduction.measures import Line, Target
from reproduction.paper import load_paper
from reproduction.papers.ako import lines
from reproduction.papers.ako.claims import (
    Ascending,
    BestChanges,
    BestOf,
    Between,
    ComputesLonger,
    Factor,
    FollowsPrediction,
    OneIsFaster,
    at,
    bandwidth,
    computing_share,
    epoch_seconds,
    epochs_in_all,
    epochs_to,
    predicted,
    processors,
    use_of_links,
)
from reproduction.papers.ako.scales import (
    CPU,
    LENGTH,
    NETWORK_SECONDS,
    TINY,
    WALL,
    as_rate,
    mean_time,
    model_bytes,
    rate,
)
from reproduction.races import TimesFaster
from reproduction.record import COLUMNS, Evaluated, Record, Result
from reproduction.runs import Needed, Setting, of_lines
from reproduction.series import Series
from reproduction.significance import Decision
from reproduction.tables import of_reaching
from testbed.algorithms.ako import partitions
from testbed.experiment.spec import Spec
from testbed.results.reading.run_files import MeanAndExtremes, PartUse

HALF = Target(50.0)
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


@pytest.fixture(scope="module")
def runs() -> dict[str, dict[str, Needed]]:
    """The runs of seed 1 at scale cpu, by the part and the name of the line."""
    paper = load_paper("ako")
    return {
        part.name: {one.series.name: one for one in of_lines(part.series, Setting(CPU, (1,)))}
        for part in paper.parts
    }


def spec(runs: dict[str, dict[str, Needed]], part: str, name: str) -> Spec:
    """Return the spec of a line's run."""
    return runs[part][name].run.spec


def line(series: Series, of: Spec, accuracy: float, *, seeds: int = 2, received: float = 0) -> Line:
    """Make a line that reaches an accuracy in 10 s and 1,000 updates, in equal steps."""
    steps = np.linspace(0, 1, 6)
    found = []
    for seed in range(1, seeds + 1):
        counts = (1000 * steps).astype(np.int64)
        loss = np.full(6, np.nan)
        known = Evaluated(
            counts, accuracy * steps, received * steps, received * steps, 10 * steps, loss
        )
        found.append(Record(of.model_copy(update={"seed": seed}), RESULT, known))
    return Line(series, tuple(found))


@pytest.fixture
def eight(runs: dict[str, dict[str, Needed]]) -> dict[str, Line]:
    """Lines on eight machines, of which Ako is the most accurate."""
    accuracies = {"ako-8": 80.0, "ps-7+1": 60.0, "all-to-all-8": 40.0}
    return {
        name: line(runs["fig8"][name].series, spec(runs, "fig8", name), accuracy)
        for name, accuracy in accuracies.items()
    }


def test_equation_3_gives_the_papers_partitions(runs: dict[str, dict[str, Needed]]) -> None:
    def of(part: str, name: str) -> int:
        one = spec(runs, part, name)
        n = one.devices.workers
        return partitions(1 / mean_time(one), model_bytes(one), n, as_rate(one) / 8)

    assert of("fig9", "ako-64") == 20
    assert of("fig12", "ako-3") == 3
    assert of("fig8", "ako-8") == of("fig8-network", "ako") == 2
    assert of("fig13", "with") == of("fig13-network", "with") == 3


def test_runs_last_as_long_as_their_figure(runs: dict[str, dict[str, Needed]]) -> None:
    """All lines of a figure end at about one moment, whatever their number of updates."""
    for name, one in runs["fig9"].items():
        found = one.run.spec
        most = 4 if name == "all-to-all-64" else 1
        assert found.training.updates / rate(found) == pytest.approx(most * LENGTH, rel=0.1)
    bounds = {
        n: getattr(spec(runs, "fig9", f"{label}-{n}").algorithms[0], "staleness_bound", None)
        for n in lines.MACHINES
        for label in ("ako", "all-to-all")
    }
    assert bounds == {16: 2, 32: 4, 64: 8}


def sent(one: Spec) -> float:
    """Return how long a message takes beside a gradient."""
    return 8 * model_bytes(one) / as_rate(one) / mean_time(one)


def test_a_message_of_the_network_for_imagenet_takes_as_long_as_in_fig_13(
    runs: dict[str, dict[str, Needed]],
) -> None:
    assert set(runs["fig13-network"]) == set(runs["fig13"])
    for name in runs["fig13"]:
        own, cnn = spec(runs, "fig13-network", name), spec(runs, "fig13", name)
        assert own.model.name == "ako-imagenet"
        assert own.algorithms == cnn.algorithms and own.devices == cnn.devices
        assert sent(own) == pytest.approx(sent(cnn), rel=1e-3)
        assert own.training.updates == cnn.training.updates


def test_a_message_of_the_papers_network_takes_as_long_as_in_fig_8(
    runs: dict[str, dict[str, Needed]],
) -> None:
    """Links are slower by as much as the network is smaller, so that only the network differs."""
    assert model_bytes(spec(runs, "fig8-network", "ako")) == 4 * 59_590
    usual = {"ako": "ako-8", "all-to-all": "all-to-all-8"}
    usual |= {name: name for name in ("ps-7+1", "ps-6+2", "tf-6+2")}
    assert set(usual) == set(runs["fig8-network"])
    for name, other in usual.items():
        own, cnn = spec(runs, "fig8-network", name), spec(runs, "fig8", other)
        assert own.model.name == "ako-mnist"
        assert own.model.initialisation == cnn.model.initialisation
        assert own.dataset == cnn.dataset and own.devices == cnn.devices
        assert sent(own) == pytest.approx(sent(cnn), rel=1e-4)
        assert own.training.updates / rate(own) == pytest.approx(NETWORK_SECONDS, rel=0.05)


def test_the_largest_layer_of_a_model_is_one_server_of_tensorflows(
    runs: dict[str, dict[str, Needed]],
) -> None:
    """Its server sends 95 % of AdaComp's CNN for each gradient, whatever the number of servers."""
    one = spec(runs, "table1", "tf-6+2")
    assert rate(one) == pytest.approx(as_rate(one) / (8 * 4 * 200_832))


def test_allocations_take_all_machines(runs: dict[str, dict[str, Needed]]) -> None:
    for name in runs["fig2"]:
        devices = spec(runs, "fig2", name).devices
        assert devices.workers + devices.servers == 64
    for name in runs["fig4"]:
        assert spec(runs, "fig4", name).devices.co_located
    assert {lines.with_ratio(n, 8) for n in lines.MACHINES} == {(14, 2), (28, 4), (56, 8)}
    assert spec(runs, "fig9", "ps-16+16").devices.placement == "co-located"
    # One run serves all figures that have it.
    for part in ("fig3", "fig9", "fig10", "table1"):
        assert runs[part]["ps-48+16"].identity == runs["fig2"]["ps-48+16"].identity


def test_links_and_gradients_are_five_times_slower_under_the_wall_clock(
    runs: dict[str, dict[str, Needed]],
) -> None:
    slow = {one.series.name: one.run.spec for one in of_lines(lines.ON_WALL, Setting(WALL, (1,)))}
    for name, virtual in {"ako": "ako-8", "all-to-all": "all-to-all-8", "ps-7+1": "ps-7+1"}.items():
        fast = spec(runs, "fig8", virtual)
        assert slow[name].clock == "wall"
        assert as_rate(slow[name]) * 5 == as_rate(fast)
        assert mean_time(slow[name]) == pytest.approx(5 * mean_time(fast))
        assert slow[name].training.learning_rate == fast.training.learning_rate


def test_claims_of_accuracies_hold_and_fail(eight: dict[str, Line]) -> None:
    measure = at(5)
    titles = {"Ako": "ako-8", "PS": "ps-7+1", "All-to-All": "all-to-all-8"}
    assert measure(eight["ako-8"]) == {1: 40, 2: 40}
    assert at(12)(eight["ako-8"]) == {}
    assert BestOf("Ako", titles, measure, "").check(eight).decision is Decision.HOLDS
    assert BestOf("PS", titles, measure, "").check(eight).decision is Decision.FAILS
    rising = tuple(reversed(titles.values()))
    assert Ascending(rising, measure, "").check(eight).decision is Decision.HOLDS
    assert Ascending(tuple(titles.values()), measure, "").check(eight).decision is Decision.FAILS
    # A factor is two-sided: 80 is twice 40, and neither as much as it nor four times.
    for factor, decision in ((2, Decision.HOLDS), (1, Decision.FAILS), (4, Decision.FAILS)):
        claim = Factor("ako-8", "all-to-all-8", Line.greatest, factor, "")
        assert claim.check(eight).decision is decision
    # Ako has 50 % after 625 updates; All-to-All has not, and takes more than its 1,000.
    half = Factor("ako-8", "all-to-all-8", epochs_to(HALF), 0.5, "", epochs_in_all)
    open_ended = half.check(eight)
    assert open_ended.decision is Decision.UNDECIDED and "times" not in open_ended.measured
    assert (
        Factor("all-to-all-8", "ako-8", epochs_to(HALF), 0.5, "", epochs_in_all)
        .check(eight)
        .decision
        is Decision.FAILS
    )
    same = {"a": titles, "b": titles}
    assert BestChanges(same, measure, "").check(eight).decision is Decision.FAILS
    others = {"a": titles, "b": {"Ako": "all-to-all-8", "PS": "ps-7+1", "All-to-All": "ako-8"}}
    assert BestChanges(others, measure, "").check(eight).decision is Decision.HOLDS


def test_claims_of_epochs_and_times_hold_and_fail(eight: dict[str, Line]) -> None:
    epochs = epochs_to(HALF)
    # 80 % is reached in 1,000 updates, in equal steps, and 50 % in 625, whichever are evaluated.
    assert epochs(eight["ako-8"])[1] == pytest.approx(625 * 10 / 60_000)
    rarely = tuple(
        replace(
            run,
            evaluations=replace(
                run.evaluations,
                **{one: getattr(run.evaluations, one)[::5] for one in COLUMNS},
            ),
        )
        for run in eight["ako-8"].runs
    )
    assert epochs(replace(eight["ako-8"], runs=rarely)) == pytest.approx(epochs(eight["ako-8"]))
    assert epochs(eight["all-to-all-8"]) == {1: np.inf, 2: np.inf}
    order = ("ako-8", "ps-7+1", "all-to-all-8")
    # All-to-All has not come there in 1,000 updates: more epochs than Ako's, or undecided.
    in_all = {name: epochs_in_all(line)[1] for name, line in eight.items()}
    assert in_all["ako-8"] == pytest.approx(1000 * 10 / 60_000)
    names = ("ako-8", "all-to-all-8")
    long_enough = Ascending(names, epochs, "", unit="epochs", least=epochs_in_all).check(eight)
    assert long_enough.decision is Decision.HOLDS and "All-to-All" in long_enough.measured
    reverse = Ascending(("all-to-all-8", "ako-8"), epochs, "", unit="epochs", least=epochs_in_all)
    assert reverse.check(eight).decision is Decision.FAILS

    def short(line: Line) -> dict[int, float]:
        return dict.fromkeys(epochs_in_all(line), 0.01)

    for several in (order, ("all-to-all-8", "ako-8")):
        told = Ascending(several, epochs, "", unit="epochs", least=short).check(eight)
        assert told.decision is Decision.UNDECIDED
    assert of_reaching({1: 0.5, 2: np.inf}) == "0.50 (1 seed); 1 of 2 seeds reach it"
    # 10 s for 1,000 gradients of 10 images.
    assert epoch_seconds(eight["ako-8"])[1] == pytest.approx(60)
    # 6,000 gradients of 0.1 s on 7 workers take 86 s.
    assert ComputesLonger("ps-7+1", "ako-8").check(eight).decision is Decision.HOLDS
    # 6,000 gradients of 0.1 s on 8 workers take 75 s, more than the 60 s of these invented curves.
    assert computing_share(eight["ako-8"])[1] == pytest.approx(125)
    assert OneIsFaster(order[1:], "ako-8", HALF, "").check(eight).decision is Decision.FAILS
    assert OneIsFaster(order[:2], "all-to-all-8", HALF, "").check(eight).decision is Decision.HOLDS
    faster = TimesFaster("ako-8", ("all-to-all-8",), HALF, 1.5, "", at_least=True)
    assert faster.check(eight).decision is Decision.HOLDS
    # By its end All-to-All had taken 1.6 times as long, and nobody knows how much longer it takes.
    assert replace(faster, at_least=False).check(eight).decision is Decision.UNDECIDED
    assert (
        replace(faster, fast="all-to-all-8", others=("ako-8",)).check(eight).decision
        is Decision.FAILS
    )


def test_the_use_of_the_network_is_compared_with_equation_3(
    runs: dict[str, dict[str, Needed]],
) -> None:
    names = {float(p): f"ako-{p}" for p in (2, 3)}
    known = {p: spec(runs, "fig12", name) for p, name in names.items()}
    assert predicted(known[3], 3) == pytest.approx(10 * 846_760 * 8e-6 * 15 / 3)

    def with_usage(two: float, three: float) -> dict[str, Line]:
        """Lines whose 16 peers receive so many Mbit/s each."""
        usage = {2.0: two, 3.0: three}
        return {
            name: line(
                runs["fig12"][name].series, known[p], 50, received=16 * usage[p] * 1e6 / 8 * 10
            )
            for p, name in names.items()
        }

    found = with_usage(400, predicted(known[3], 3))
    assert bandwidth(found["ako-2"])[1] == pytest.approx(400)
    # p = 2 would take 508 Mbit/s of the link's 400.
    assert FollowsPrediction(names, 0.1, exceeds=True).check(found).decision is Decision.HOLDS
    assert FollowsPrediction(names, 0.1, exceeds=False).check(found).decision is Decision.HOLDS
    wrong = with_usage(508, 200)
    assert FollowsPrediction(names, 0.1, exceeds=True).check(wrong).decision is Decision.FAILS
    assert FollowsPrediction(names, 0.1, exceeds=False).check(wrong).decision is Decision.FAILS


def test_the_use_of_devices_is_that_of_their_parts(eight: dict[str, Line]) -> None:
    """Links count for all devices, and processors for those that compute gradients."""

    def spread(mean: float) -> MeanAndExtremes:
        return MeanAndExtremes(mean=mean, minimum=mean, maximum=mean)

    use = {
        "worker": PartUse(devices=6, cpu=spread(0.8), uplink=spread(0.1)),
        "server": PartUse(devices=2, uplink=spread(0.5)),
    }
    one = eight["ps-7+1"]
    told = RESULT.model_copy(update={"use": use})
    lines = {"ps": replace(one, runs=tuple(replace(run, result=told) for run in one.runs))}
    assert use_of_links(lines["ps"]) == {1: pytest.approx(20), 2: pytest.approx(20)}
    assert processors(lines["ps"]) == {1: pytest.approx(80), 2: pytest.approx(80)}
    assert Between("ps", processors, "", 79, 81).check(lines).decision is Decision.HOLDS
    assert Between("ps", processors, "", 81, 90).check(lines).decision is Decision.FAILS
    assert Between("ps-7+1", processors, "", 0, 100).check(eight).decision is Decision.UNKNOWN


def test_a_claim_without_its_runs_is_not_measured(eight: dict[str, Line]) -> None:
    none = {name: replace(one, runs=()) for name, one in eight.items()}
    names = {"Ako": "ako-8", "PS": "ps-7+1"}
    claims = (
        BestOf("Ako", names, at(5), ""),
        BestChanges({"a": names}, at(5), ""),
        Ascending(tuple(names.values()), at(5), ""),
        Factor("ako-8", "ps-7+1", Line.greatest, 2, ""),
        ComputesLonger("ps-7+1", "ako-8"),
        FollowsPrediction({3.0: "ako-8"}, 0.1, exceeds=True),
    )
    assert {claim.check(none).decision for claim in claims} == {Decision.UNKNOWN}


def test_a_figure_is_run_and_written(tmp_path: Path) -> None:
    order = ["fig13", "--paper", "ako", "--scale", "tiny", "--engine", "simulation"]
    only = ["--only", "with,without", "--at-once", "1", "--out", str(tmp_path)]
    assert main([*order, *only]) == 0
    pages = tmp_path / "pages" / TINY.name
    assert "| Ako, p by (3) |" in (pages / "fig13.md").read_text()
    assert (pages / "fig13.svg").exists()
    assert len(record_files.read(pages / "records")) == 2
