"""Where devices of a run stand to each other: whom they call, and what is above and below them."""

from dataclasses import replace

from testbed.training.run_devices import RunDevices
from tests.settings import SIMPLE


def in_tree(workers: int, aggregator_of: list[int]) -> RunDevices:
    addresses = [f"10.0.0.{i}" for i in range(len(aggregator_of) - workers)]
    network = replace(SIMPLE.network, aggregator_of=aggregator_of, aggregator_addresses=addresses)
    return replace(SIMPLE, workers=workers, network=network)


def test_the_aggregators_above_a_device_are_given_from_the_nearest_on() -> None:
    # worker 0 -> aggregator 2 -> aggregator 1 -> the servers; worker 1 -> aggregator 0 -> the servers.
    run = in_tree(2, [2, 0, -1, -1, 1])
    first, outer, inner = 2, 3, 4  # by their numbers as workers
    assert [list(run.above(one)) for one in range(5)] == [[inner, outer], [first], [], [], [outer]]
    assert [run.serving_index(one) for one in (first, outer, inner)] == [1, 2, 3]
    assert [run.as_worker(index) for index in (1, 2, 3)] == [first, outer, inner]


def test_levels_are_counted_to_the_deepest_device() -> None:
    run = in_tree(2, [2, 0, -1, -1, 1])
    assert run.levels_below(0) == {2: 1, 3: 2}
    assert run.levels_below(2) == {4: 1}
    assert run.levels_below(1) == run.levels_below(3) == {}
    assert in_tree(2, []).levels_below(0) == {}
