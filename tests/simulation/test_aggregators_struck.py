"""Faults of aggregators in simulations: freezes, outages and slower links."""

from typing import Any

import pytest

from tests.simulation.test_hierarchical import UPDATES, WORKERS
from tests.simulation.test_hierarchical import run as run_in_clusters
from tests.simulation.test_hierarchical_faults import run
from tests.simulation.test_simulated import Simulated

ALL, ASYNCHRONOUS = {"name": "hierarchical"}, {"name": "hierarchical", "server": "asynchronous"}
STARS = [(ALL, {"name": "sync-sgd"}), (ASYNCHRONOUS, {"name": "asgd"})]
IDS = ["synchronous", "asynchronous"]
ONE_EACH = (1,) * WORKERS
BY_ROWS = ("iteration", "base_version", "staleness", "time", "loss")


def fault(
    *devices: str, how: Any, when: Any = "333ms", lasting: str | None = "700ms"
) -> dict[str, Any]:
    at = {"time": when} if isinstance(when, str) else when
    made = {"who": {"devices": list(devices)}, "when": at, "how": how}
    return made if lasting is None else made | {"lasting": lasting}


def silent(algorithm: dict[str, Any], *faults: dict[str, Any], **more: Any) -> Simulated:
    """Simulate clusters of one device each, of which none is suspected."""
    return run(algorithm, ONE_EACH, *faults, suspect_after=None, **more)


def changes(simulated: Simulated) -> list[tuple[Any, ...]]:
    return [(one["phase"], one["time"], one["duration"]) for one in simulated.faults]


@pytest.mark.parametrize(("tree", "star"), STARS, ids=IDS)
@pytest.mark.parametrize("how", ["freeze", "stop-network", "partition"])
@pytest.mark.parametrize("at", [("333ms",), ({"iteration": 3},), ("200ms", "650ms")], ids=str)
def test_an_aggregator_of_one_device_that_is_silent_is_that_device_cut_off(
    tree: dict[str, Any], star: dict[str, Any], how: str, at: Any
) -> None:
    """Over links that take no time, what is held at the aggregator is held on the device's link."""
    # Of two outages that end at one moment, what passes flows may come in another order.
    some = (1, 4) if how == "freeze" else (1,)
    struck, cut = (
        silent(
            algorithm,
            *(
                fault(*(f"{part}-{i}" for i in some), how=kind, when=one, lasting="300ms")
                for one in at
            ),
        )
        for algorithm, part, kind in ((tree, "aggregator", how), (star, "worker", "stop-network"))
    )
    assert struck.faults[0]["devices"] == [WORKERS + i for i in some]
    assert changes(struck) == changes(cut)
    assert struck.digest == cut.digest
    of_tree, of_star = (one.rows[one.rows["applied"]] for one in (struck, cut))
    for column in BY_ROWS:
        assert of_tree[column].tolist() == of_star[column].tolist()


@pytest.mark.parametrize("network", ["own links", "shared"])
def test_outages_of_both_legs_of_an_aggregator_delay_what_passes_them(network: str) -> None:
    """An outage that holds nothing up changes nothing; one of the aggregator holds both legs up."""
    outage = fault("aggregator-0", how="stop-network")
    whole, struck = (
        run(ALL, (3, 3), *faults, network=network, suspect_after=None) for faults in ([], [outage])
    )
    assert len(struck.rows) == len(whole.rows)
    assert struck.digest == whole.digest  # all wait for all, so only times change
    late = [a["time"] - b["time"] for a, b in zip(struck.rows, whole.rows, strict=True)]
    assert 0.3 < max(late) < 0.75
    during = [one["time"] for one in struck.rows if 0.34 < one["time"] < 1.03]
    assert len(during) < 3  # what had left the aggregator by then, and nothing else


def test_a_slower_link_of_an_aggregator_slows_both_legs() -> None:
    def end(*faults: dict[str, Any]) -> float:
        found = run(ALL, (3, 3), *faults, network="shared", suspect_after=None)
        return float(found.rows["time"][-1])

    def last(**rates: str) -> float:
        slow = fault("aggregator-1", how={"kind": "slow", **rates}, when="1ms", lasting=None)
        return end(slow)

    whole = end()
    assert last(uplink="1gbit", downlink="1gbit") == pytest.approx(whole, rel=1e-3)
    assert last(uplink="1mbit") > whole + 10
    assert last(downlink="1mbit") > whole + 10
    assert last(uplink="1mbit", downlink="1mbit") > max(
        last(uplink="1mbit"), last(downlink="1mbit")
    )


@pytest.mark.parametrize("how", ["freeze", "stop-network"])
@pytest.mark.parametrize(("tree", "star"), STARS, ids=IDS)
def test_an_aggregator_that_is_silent_for_good_takes_its_devices_with_it(
    tree: dict[str, Any], star: dict[str, Any], how: str
) -> None:
    """Nobody suspects it: a synchronous server waits, and an asynchronous one goes on without it."""
    struck = silent(tree, fault("aggregator-2", how=how, lasting=None))
    cut = silent(star, fault("worker-2", how="stop-network", lasting=None))
    assert struck.system.version == cut.system.version
    assert (struck.system.version == UPDATES) is (tree is ASYNCHRONOUS)
    assert struck.digest == cut.digest


@pytest.mark.parametrize("algorithm", [ALL, ASYNCHRONOUS, ALL | {"within": "120ms"}], ids=str)
@pytest.mark.parametrize("how", ["freeze", "stop-network"])
def test_a_killed_device_comes_back_when_its_aggregator_can_answer(
    algorithm: dict[str, Any], how: str
) -> None:
    faults = [
        fault("worker-1", how="kill", when="300ms", lasting="200ms"),
        fault("aggregator-0", how=how),
    ]
    found = run(algorithm, (3, 3), *faults, network="shared")
    told = [(one["fault"], one["phase"], one["time"]) for one in found.faults]
    assert told == [
        ("kill", "begin", 0.3),
        (how, "begin", 0.333),
        (how, "end", 1.033),
        ("kill", "end", 1.033),
    ]
    assert found.system.version == UPDATES


def test_what_arrives_at_a_frozen_aggregator_is_not_moved_by_an_outage_of_its_sender() -> None:
    """It has left the link: the outage only holds up what the worker sends after that."""
    kept = silent(ASYNCHRONOUS, fault("aggregator-1", how="freeze", when="300ms"))
    both = silent(
        ASYNCHRONOUS,
        fault("aggregator-1", how="freeze", when="300ms"),
        fault("worker-1", how="stop-network", when="900ms", lasting="80ms"),
    )
    assert both.digest == kept.digest
    assert both.rows["time"].tolist() == kept.rows["time"].tolist()


@pytest.mark.parametrize("algorithm", [ALL, ASYNCHRONOUS], ids=IDS)
def test_a_frozen_aggregator_with_a_processor_handles_the_rest_after_its_thaw(
    algorithm: dict[str, Any],
) -> None:
    """A message that takes 20 ms is under way when the freeze begins, and ends that much later."""
    frozen = fault("aggregator-1", how="freeze", when="330ms")
    whole, struck = (
        run_in_clusters(algorithm, ONE_EACH, costs={"message": "20ms"}, faults=faults)
        for faults in ([], [frozen])
    )
    assert struck.system.version == UPDATES
    own = struck.rows[struck.rows["worker"] == WORKERS + 1]["time"]
    assert not ((own > 0.36) & (own < 1.03)).any()
    if algorithm is ALL:
        assert struck.rows["time"][-1] > whole.rows["time"][-1]


@pytest.mark.parametrize("how", ["freeze", "stop-network"])
@pytest.mark.parametrize("lasting", ["3s", None])
def test_a_silent_aggregator_is_suspected(how: str, lasting: str | None) -> None:
    """It has twice its devices' time; frozen, it suspects none of those whose pushes wait there."""
    found = run(
        *(ALL, (3, 3), fault("aggregator-0", how=how, when="400ms", lasting=lasting)),
        suspect_after="600ms",
    )
    assert found.system.version == UPDATES
    of_above = [one for one in found.notes.noticed if how == "freeze" or one[1] >= WORKERS]
    suspected, *welcomed = of_above
    assert suspected[:2] == ("suspected", WORKERS)
    assert suspected[2] == pytest.approx(1.2)
    assert [one[:2] for one in welcomed] == [("welcomed", WORKERS)] * (lasting is not None)
