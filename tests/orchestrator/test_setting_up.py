"""The time limits of set-up: one for loading, and one for each step after it."""

import pytest

from testbed.orchestrator.setting_up import LOADING_TIMEOUT, SETUP_TIMEOUT, SettingUp


@pytest.mark.parametrize(("alone", "more"), [(0, 0.0), (3, 30.0)])
def test_loading_has_a_limit_of_its_own(alone: int, more: float) -> None:
    setting_up = SettingUp(100.0, alone)
    setting_up.moved = 900.0  # the network was built meanwhile
    assert setting_up.overdue(100.0 + LOADING_TIMEOUT + more) is None
    late = setting_up.overdue(101.0 + LOADING_TIMEOUT + more)
    assert late == f"libraries and data were not loaded within {LOADING_TIMEOUT + more:g} s"


@pytest.mark.parametrize(("alone", "more"), [(0, 0.0), (3, 30.0)])
def test_set_up_may_last_as_long_as_it_makes_progress(alone: int, more: float) -> None:
    setting_up = SettingUp(100.0, alone)
    setting_up.loaded = True
    setting_up.moved = 5_000.0
    assert setting_up.overdue(5_000.0 + SETUP_TIMEOUT + more) is None
    late = setting_up.overdue(5_001.0 + SETUP_TIMEOUT + more)
    limit = f"{SETUP_TIMEOUT + more:g}"
    assert late == f"training did not begin, and nothing of the set-up got further for {limit} s"
