"""``testbed plan`` prints the choices of an algorithm, and why it makes them."""

from typing import Any

from testbed.cli.plan_text import of_algorithms
from testbed.experiment.spec import Spec
from testbed.planning.plan import plan

PEERS: dict[str, Any] = {
    "name": "peers",
    "dataset": "digits",
    "model": "mlp",
    "training": {"updates": 4},
    "algorithms": ["ako", {"name": "ako", "label": "two", "partitions": 2}, "all-to-all"],
    "devices": {"workers": 6},
    "clock": "virtual",
    "network": {"uplink": "100mbit"},
    "compute": {"distribution": "constant", "mean": "30ms"},
}
EQUATION_3 = "p = 6 partitions by equation (3): 33.33 gradients/s of 437,544 bytes to 5 peers, at"


def lines(**changes: Any) -> list[str]:
    return of_algorithms(plan(Spec.model_validate(PEERS | changes)))


def test_it_says_p_and_why() -> None:
    assert lines() == [
        f"ako: {EQUATION_3} 12,500,000 bytes/s",
        "two: p = 2 partitions, as given",
    ]
    assert lines(network={})[0] == "ako: p = 1 partition by equation (3): no rate limits the uplink"
    (measured, _) = lines(clock="wall")
    assert (
        measured
        == "ako: p by equation (3) after each peer's first round, which sends whole gradients"
    )


def test_it_tells_classes_apart_where_they_differ() -> None:
    classes = [
        {"name": "slow", "share": "50%", "uplink": "50mbit"},
        {"name": "fast", "share": "50%"},
    ]
    found = lines(devices={"workers": 6, "classes": classes})
    assert [line.partition(" partitions")[0] for line in found] == [
        "ako, slow: p = 12",
        "ako, fast: p = 6",
        "two: p = 2",
    ]
