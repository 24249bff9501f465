"""Probes of the links before training: links as asked, one wrong on purpose, probes switched off."""

import pytest

from tests.end_to_end.conftest import SMALL, CommandLine

pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("namespaces"),
]

SHAPED = SMALL | {
    "network": {"uplink": "20mbit", "downlink": "100mbit"},
    "devices": {"workers": 4},
    "training": {"updates": 20},
    "evaluation": {"every": 10},
}
PATIENCE = 500.0
"""Seconds that a run and its report may take on a busy host."""
_BREAKING = """
from testbed.planning import node_plan

as_planned = node_plan.network

def otherwise(plan, directory):
    told = as_planned(plan, directory)
    (link,) = (one for one in told["links"] if one["node"] == "worker-1")
    link["uplink"] = link["uplink"] | {"rate": None}
    return told

node_plan.network = otherwise
"""
"""A plug-in: the process that plans executes it."""


def shown(command: CommandLine) -> str:
    result = command.do("show", "--runs", command.out)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_probes_measure_the_links_and_stay_out_of_the_ledgers(command: CommandLine) -> None:
    started = command.start_run(SHAPED)
    assert started.wait(PATIENCE) == 0, started.said
    links = started.record("manifest")["links"]
    assert (links["shaped"], links["probed"], links["unmeasured"]) == (4, 4, None)
    assert len(links["directions"]) == 8
    for one in links["directions"]:
        assert one["measured"]["rate"] == pytest.approx(one["asked"]["rate"], rel=0.1), one
    assert started.record("summary")["traffic"]["reconciled"] is True
    said = [event["event"] for event in started.events()]
    assert said.index("4 of 4 shaped links were measured and are as asked") < said.index(
        "training begins"
    )
    assert "4 of 4 shaped links measured: as asked" in shown(command)


def test_a_link_that_is_not_shaped_causes_a_warning(command: CommandLine) -> None:
    (command.folder / "otherwise.py").write_text(_BREAKING)
    started = command.start_run(SHAPED | {"plugins": ["otherwise.py"]}, report=True)
    assert started.wait(PATIENCE) == 0, started.said
    (event,) = (event for event in started.events() if event["level"] == "warning")
    assert event["device"] == "worker-1"
    assert "its uplink is not as asked: a rate of at least" in event["event"]
    assert "where 20 Mbit/s is asked" in event["event"]
    assert event["event"] in started.said  # also printed
    wrong = {
        (one["device"], one["direction"])
        for one in started.record("manifest")["links"]["directions"]
        if one["off"]
    }
    assert wrong == {("worker-1", "uplink")}
    text = shown(command)
    assert "1 NOT as asked" in text and "uplink of worker-1" in text
    report = next(command.out.glob("*/*/report.html")).read_text()
    assert "uplink of worker-1" in report and "rate not as asked" in report
    assert started.record("summary")["traffic"]["reconciled"] is True


def test_probes_can_be_switched_off(command: CommandLine) -> None:
    started = command.start_run(SHAPED, "--set", "network.probe=false")
    assert started.wait(PATIENCE) == 0, started.said
    links = started.record("manifest")["links"]
    assert links["unmeasured"] == "switched off by network.probe"
    assert links["directions"] == []
    assert not [event for event in started.events() if "shaped links" in event["event"]]
    assert "probe: false" in (started.run_directory / "spec.yaml").read_text()
