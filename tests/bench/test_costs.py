"""The bench of what messages cost a server: it measures a real one, and prints a line for a file."""

import sys

import pytest
import yaml

from bench import costs
from testbed.experiment.sections.timing import CostsSpec


def test_the_line_is_that_of_an_experiment_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(costs, "EXCHANGES", 5)
    monkeypatch.setattr(sys, "argv", ["costs", str(costs.SPEC), "algorithms=[asgd]"])
    costs.main()
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(" bytes")[0].split()[-1] for line in printed[:3]] == [
        "68",
        "437,608",
        "875,184",
    ]
    found = CostsSpec.model_validate(yaml.safe_load(printed[3])["costs"])
    assert found.message > 0


def test_costs_add_up_to_what_was_measured() -> None:
    def exchange(seconds: float, messages: int, size: int) -> costs.Exchange:
        return costs.Exchange((seconds, seconds, seconds), messages, size)

    small, large = exchange(40e-6, 2, 68), exchange(80e-6, 2, 100_068)
    push = exchange(200e-6, 3, 200_100)
    found = costs.costs(small, large, push, 25_000)
    for one in (small, large):
        assert 2 * found.message + one.size * found.byte == pytest.approx(one.seconds[0])
    total = 3 * found.message + push.size * found.byte + 25_000 * found.apply
    assert total == pytest.approx(200e-6)
