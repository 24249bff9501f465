"""A slow host may load for long; what does not begin then never does."""

import pytest

from testbed.orchestrator.setting_up import LOADING_TIMEOUT, SETUP_TIMEOUT, SettingUp


@pytest.mark.parametrize(("alone", "more"), [(0, 0.0), (3, 30.0)])
def test_loading_and_the_rest_have_a_limit_each(alone: int, more: float) -> None:
    setting_up = SettingUp(100.0, alone)
    assert setting_up.overdue(100.0 + LOADING_TIMEOUT + more) is None
    late = setting_up.overdue(101.0 + LOADING_TIMEOUT + more)
    assert late == f"libraries and data were not loaded within {LOADING_TIMEOUT + more:g} s"
    setting_up.loaded = 900.0  # what took longer than the rest may take
    assert setting_up.overdue(900.0 + SETUP_TIMEOUT + more) is None
    late = setting_up.overdue(901.0 + SETUP_TIMEOUT + more)
    limit = f"{SETUP_TIMEOUT + more:g}"
    assert late == f"training did not begin within {limit} s of loading libraries and data"
