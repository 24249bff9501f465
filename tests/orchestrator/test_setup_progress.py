"""The time limits of set-up: one for loading, and one for each step after it."""

import pytest

from testbed.orchestrator.setup_progress import LOADING_TIMEOUT, SETUP_TIMEOUT, SetupProgress


@pytest.mark.parametrize(("alone", "more"), [(0, 0.0), (3, 30.0)])
def test_loading_has_a_limit_of_its_own(alone: int, more: float) -> None:
    progress = SetupProgress(100.0, alone)
    progress.moved = 900.0  # the network was built meanwhile
    assert progress.overdue(100.0 + LOADING_TIMEOUT + more) is None
    late = progress.overdue(101.0 + LOADING_TIMEOUT + more)
    assert late == f"libraries and data were not loaded within {LOADING_TIMEOUT + more:g} s"


@pytest.mark.parametrize(("alone", "more"), [(0, 0.0), (3, 30.0)])
def test_set_up_may_last_as_long_as_it_makes_progress(alone: int, more: float) -> None:
    progress = SetupProgress(100.0, alone)
    progress.loaded = True
    progress.moved = 5_000.0
    assert progress.overdue(5_000.0 + SETUP_TIMEOUT + more) is None
    late = progress.overdue(5_001.0 + SETUP_TIMEOUT + more)
    limit = f"{SETUP_TIMEOUT + more:g}"
    assert late == f"training did not begin, and nothing of the set-up got further for {limit} s"
