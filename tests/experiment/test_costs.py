"""``costs`` in the experiment file: what the roles get, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from testbed.errors import SpecError
from testbed.experiment.load import load
from testbed.experiment.sections.timing import CostsSpec
from testbed.planning.plan import plan
from tests.experiment.test_co_located_servers import planned, written

COSTS = {"message": "50us", "byte": "0.3ns"}


def test_roles_get_the_costs_in_seconds(tmp_path: Path) -> None:
    assert planned(tmp_path).settings.spec.costs is None
    found = planned(tmp_path, costs=COSTS).settings.spec.costs
    assert found == CostsSpec.model_construct(message=50e-6, byte=0.3e-9, apply=0)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"clock": "wall"}, "costs: messages cost real time under the wall clock: take it out"),
        (
            {"algorithms": ["asgd", "all-to-all"], "devices": {"workers": 2}},
            "costs: peers (all-to-all) have no server: take it out",
        ),
    ],
)
def test_costs_that_mean_nothing_are_refused(
    tmp_path: Path, changes: dict[str, Any], text: str
) -> None:
    with pytest.raises(SpecError) as refused:
        plan(load(written(tmp_path, costs=COSTS, **changes)))
    assert text in str(refused.value)
