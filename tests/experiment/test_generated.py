"""A few of the experiment files of ``make fuzz``, and that its checks find what they are for."""

from pathlib import Path

import pytest

from bench.fuzz import specs
from bench.fuzz.values import places, spoilt, with_value
from testbed.durations import traces as durations
from testbed.errors import SpecError
from testbed.experiment.rate_trace_files import read_csv
from testbed.faults import fault_traces as faults
from testbed.faults.presence import load_presence


def test_generated_files_are_planned_or_refused_in_sentences(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = specs.main(["--first", "1", "--plan", "30", "--simulate", "2", "--emulate", "0"])
    printed = capsys.readouterr().out
    assert status == 0, printed
    last = printed.splitlines()[-1]
    assert " accepted, " in last and " refused, " in last and "2 simulated; 0 seeds failed" in last


def test_the_traces_that_files_may_name_can_be_read(tmp_path: Path) -> None:
    specs.Generator(tmp_path)
    devices = {"worker-0": 0, "worker-1": 1}
    assert durations.load_trace(tmp_path / "trace.csv").devices
    assert faults.load_trace(tmp_path / "struck.csv", devices)
    assert load_presence(tmp_path / "presence.csv", devices)
    assert set(read_csv(tmp_path / "rates.csv", None)) == {"uplink", "downlink"}


def test_a_seed_makes_one_file(tmp_path: Path) -> None:
    generator = specs.Generator(tmp_path)
    assert generator.valid(7, []) == generator.valid(7, [])
    assert generator.valid(7, []) != generator.valid(8, [])


@pytest.mark.parametrize(
    "text",
    [
        "spec.yaml:3: devices: Input should be a valid dictionary",
        "spec.yaml:3: faults: 'NoneType' object is not subscriptable",
        "KeyError: 'server-0'",
        "spec.yaml:1: ",
    ],
)
def test_the_text_of_a_library_is_no_refusal(text: str) -> None:
    assert specs.unclear(SpecError(text))


def test_an_exception_or_an_endless_loop_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = specs.Generator(tmp_path)
    data = generator.base(1)

    def broken(_spec: object) -> None:
        raise KeyError("server-0")

    def endless(_spec: object) -> None:
        while True:
            pass

    monkeypatch.setattr(specs, "PLAN_LIMIT", 0.5)
    for planning, told in ((broken, "KeyError"), (endless, "LateError")):
        monkeypatch.setattr("testbed.planning.plan.plan", planning)
        verdict, found = specs.planned(generator, data, tmp_path)
        assert verdict == "failed" and told in found[0]


def test_a_mistake_changes_a_document_and_leaves_the_original() -> None:
    import numpy as np

    data = {"devices": {"workers": 3}, "algorithms": [{"name": "asgd"}]}
    before = repr(data)
    assert places(data) == [
        ("devices",),
        ("devices", "workers"),
        ("algorithms",),
        ("algorithms", 0),
        ("algorithms", 0, "name"),
    ]
    assert with_value(data, ("algorithms", 0, "name"), "ga")["algorithms"] == [{"name": "ga"}]
    draw = np.random.default_rng(1)
    assert any(spoilt(data, draw) != data for _ in range(3))
    assert repr(data) == before
