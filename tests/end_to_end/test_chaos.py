"""Random faults against workers, with two seeds; ``make chaos CHAOS=1-100`` tries a hundred, of 50."""

from pathlib import Path

import pytest

from bench.chaos import experiment, main, seeds_of, try_out
from bench.command import CarriedOut
from bench.networks import network_kinds
from tests.end_to_end.agreement import carry_out

WORKERS, UPDATES = 16, 100


def by_warm(command: str, spec: Path, out: Path, seconds: float) -> CarriedOut:
    return carry_out(command, spec, out, seconds=seconds)


# By the virtual clock and by the wall clock; in both the server is killed as well.
@pytest.mark.real
@pytest.mark.exercises("namespaces")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("seed", "network"), [(1, "graph"), (189, "clusters")])
def test_no_update_is_lost_or_applied_twice_whatever_happens(
    seed: int, network: str, tmp_path: Path
) -> None:
    of = f"--workers {WORKERS} --updates {UPDATES} --network {network}"
    print(f"to see it again: python -m bench.chaos --seeds {seed} {of}")
    spec = experiment(seed, WORKERS, UPDATES, network)
    assert try_out(spec, tmp_path, carry_out=by_warm) == []


def test_a_seed_makes_one_experiment_and_seeds_make_all_kinds() -> None:
    assert experiment(7) == experiment(7)
    made = [experiment(seed) for seed in range(60)]
    kinds = {
        how if isinstance(how := fault["how"], str) else how["kind"]
        for one in made
        for fault in one["faults"]
    }
    assert kinds == {"freeze", "kill", "stop-network", "partition", "slow"}
    assert {one["clock"] for one in made} == {"wall", "virtual"}
    assert set(map(network_kinds, made)) >= {(), ("server",), ("clusters",), ("graph",)}


def test_seeds_are_given_as_ranges_and_lists() -> None:
    assert seeds_of("3") == [3]
    assert seeds_of("1,5-7") == [1, 5, 6, 7]


def test_a_wrong_option_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["--seeds", "all"])
    assert error.value.code == 2
    assert "--seeds" in capsys.readouterr().err
