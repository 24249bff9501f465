"""Peers in clusters take as long by the wall clock, on real links, as by the virtual clock."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import SMALL, CommandLine

pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("namespaces"),
]

IN_ROUNDS = '''
"""All-to-All in rounds: nobody computes before it has everybody's update of the last round."""

from typing import Literal

from testbed.algorithms.all_to_all import AllToAll, AllToAllOptions, ExchangingPeer


class RoundOptions(AllToAllOptions):
    name: Literal["rounds"] = "rounds"


class RoundPeer(ExchangingPeer):
    paced = True

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.steps = 0
        self.got = dict.fromkeys(self._others, 0)

    def step(self, gradient):
        self.steps += 1
        return super().step(gradient)

    def receive(self, sender, update):
        self.got[sender] += 1
        return super().receive(sender, update)

    @property
    def ready(self):
        return all(got >= self.steps for got in self.got.values())


class Rounds(AllToAll):
    options_type = RoundOptions

    @staticmethod
    def peer(options, layout, parameters, number, conditions):
        return RoundPeer(parameters, conditions.learning_rate, number, conditions.workers)

'''
NETWORK: dict[str, Any] = {
    "uplink": "40mbit",
    "downlink": "40mbit",
    "clusters": [
        {"name": "campus", "share": "50%", "uplink": "50mbit", "downlink": "50mbit"},
        {"name": "village", "share": "50%", "uplink": "10mbit", "downlink": "20mbit"},
    ],
}
RUN = SMALL | {
    "algorithms": ["rounds:Rounds"],
    "training": {"updates": 17, "learning_rate": 0.01},
    "devices": {"workers": 4},
    "network": NETWORK | {"probe": False},
    "compute": {"distribution": "constant", "mean": "100ms"},
    "evaluation": {"every": 100, "images": 100},
}


def test_rounds_of_peers_take_as_long_under_both_clocks(
    command: CommandLine, tmp_path: Path
) -> None:
    plugin = tmp_path / "rounds.py"
    plugin.write_text(IN_ROUNDS)
    seconds = {}
    for clock in ("wall", "virtual"):
        command.out = command.folder / clock
        started = command.start_run(RUN | {"clock": clock, "plugins": [str(plugin)]})
        assert started.wait(200) == 0, started.said
        summary = json.loads((started.run_directory / "summary.json").read_text())
        assert summary["ended"] == "completed"
        seconds[clock] = summary["training_seconds"]
    # Four rounds, in each of which two peers send two others about 390 kB each over 10 Mbit/s.
    assert seconds["virtual"] == pytest.approx(4 * (0.11 + 4 * 8 * 0.39 / 10) + 0.11, rel=0.1)
    # Not modelled: acknowledgements, 2 %, and what the host takes to have the peers compute.
    assert 0.9 < seconds["wall"] / seconds["virtual"] < 1.3, seconds
