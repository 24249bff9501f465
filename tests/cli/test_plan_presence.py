"""What ``testbed plan`` says of devices that arrive and leave."""

from typing import Any

import pytest

from testbed.cli.plan_presence import describe
from testbed.experiment.spec import Spec
from testbed.planning.plan import plan

NEVER = "  no update is possible: all leave before their links have brought the parameters"
TOO_SHORT: dict[str, Any] = {
    "name": "too-short",
    "dataset": "digits",
    "model": "mlp",
    "training": {"updates": 20},
    "clock": "virtual",
    "algorithms": ["asgd"],
    "devices": {"workers": 4, "leaves": "1ms", "returns": "1ms"},
    "network": {"uplink": "1mbit", "downlink": "1mbit"},
}
UNKNOWN: dict[str, dict[str, Any]] = {
    "long enough": {"devices": {"workers": 4, "leaves": "1h", "returns": "1ms"}},
    "drawn": {
        "devices": {"workers": 4, "leaves": {"distribution": "exponential", "mean": "1ms"}},
    },
    "one stays": {
        "devices": {
            "workers": 4,
            "classes": [{"name": "a", "number": 1}, {"name": "b", "number": 3, "leaves": "1ms"}],
        }
    },
    "fast links": {"network": {"uplink": "1mbit", "downlink": "10gbit"}},
    "links without a limit": {"network": {"uplink": "1mbit"}},
}


def lines(changes: dict[str, Any]) -> list[str]:
    return describe(plan(Spec.model_validate(TOO_SHORT | changes))[0])


def test_it_says_that_no_update_is_possible() -> None:
    assert lines({})[-1] == NEVER


@pytest.mark.parametrize("case", UNKNOWN)
def test_it_says_nothing_where_an_update_may_be_possible(case: str) -> None:
    assert NEVER not in lines(UNKNOWN[case])
