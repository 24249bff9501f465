"""Background traffic in simulations: what it takes, beside closed forms and runs that have less."""

from typing import Any

import pytest

from testbed.experiment.spec import Spec
from testbed.planning.plan import plan
from testbed.training.settings import Settings
from tests.simulation.test_checkpoints import Going

RUN: dict[str, Any] = {
    "name": "background",
    "seed": 3,
    "dataset": "digits",
    "model": "mlp",
    "training": {"batch_size": 10, "learning_rate": 0.05, "updates": 20},
    "devices": {"workers": 1},
    "engine": "simulation",
    "compute": {"distribution": "constant", "mean": "100ms"},
    "algorithms": ["asgd"],
}


def planned(uplink: str, flows: list[dict[str, Any]], **changes: Any) -> Settings:
    network = {"network": {"uplink": uplink, "downlink": "20mbit"}}
    spec = RUN | network | {"traffic_between": flows} | changes
    return plan(Spec.model_validate(spec))[0].settings


def flow(
    rate: str, sender: str = "worker-0", receiver: str = "server", **keys: Any
) -> dict[str, Any]:
    return {"from": sender, "to": receiver, "rate": rate, **keys}


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("law", ["constant", "poisson"])
def test_a_flow_of_2_of_8_mbit_leaves_a_worker_an_uplink_of_6(servers: int, law: str) -> None:
    devices = {"devices": {"workers": 1, "servers": servers}}
    beside = Going(
        planned(
            "8mbit",
            [flow("2mbit", receiver="server" if servers == 1 else "server-1", law=law)],
            **devices,
        )
    )
    slower, alone = (Going(planned(rate, [], **devices)) for rate in ("6mbit", "8mbit"))
    ends = [one.end() for one in (beside, slower, alone)]
    assert ends[0]["time"] == pytest.approx(ends[1]["time"])
    assert ends[0]["parameters"] == ends[1]["parameters"]
    assert ends[2]["time"] < 0.9 * ends[0]["time"]
    # The uplink has carried both.
    both = ends[0]["use"][0].sent - ends[1]["use"][0].sent
    assert both == pytest.approx(ends[0]["time"] * 2e6 / 8, abs=2)


def test_an_on_off_flow_takes_its_mean_part_in_the_long_run() -> None:
    short = flow("4mbit", law="on-off", on="10ms", off="30ms")
    beside = Going(planned("8mbit", [short], training=RUN["training"] | {"updates": 60})).end()
    mean = Going(planned("7mbit", [], training=RUN["training"] | {"updates": 60})).end()
    # A message takes the time that its bits need at 8 and at 4 Mbit/s in turn.
    assert beside["time"] == pytest.approx(mean["time"], rel=0.02)


def test_among_peers_the_links_of_both_ends_have_less() -> None:
    """Peers of one class, each with the same flows: as if all links were slower."""
    peers = {"algorithms": ["all-to-all"], "devices": {"workers": 3}}
    around = [flow("5mbit", f"worker-{i}", f"worker-{(i + 1) % 3}") for i in range(3)]
    slower = {"network": {"uplink": "3mbit", "downlink": "15mbit"}}
    beside = Going(planned("8mbit", around, **peers)).end()
    less = Going(planned("8mbit", [], **peers, **slower)).end()
    assert beside["time"] == pytest.approx(less["time"])
    assert beside["parameters"] == less["parameters"]


@pytest.mark.parametrize("kind", ["freeze", "stop-network", "kill"])
def test_a_flow_stops_while_its_sender_is_away(kind: str) -> None:
    """It leaves another worker's downlink what it took of it meanwhile."""
    away = {"who": {"devices": ["worker-0"]}, "when": {"time": "1s"}, "how": kind, "lasting": "3s"}
    workers = {"devices": {"workers": 2}}
    to_other = [flow("19mbit", "worker-0", "worker-1")]
    wide = "100mbit"
    struck = Going(planned(wide, to_other, faults=[away], **workers))
    end = struck.end()
    background = struck.system.clock.background
    assert background is not None
    ((sent, arrived),) = background.at(end["time"])
    assert sent == arrived == pytest.approx((end["time"] - 3) * 19e6 / 8, abs=1)
