"""An execution without a report, which ``testbed report`` writes later."""

import json
from pathlib import Path

from tests.end_to_end.conftest import SMALL, CommandLine


def test_a_report_can_be_written_later(command: CommandLine) -> None:
    options = ("--out", command.out, "--no-report", "--json")
    simulated = command.do("simulate", command.spec(SMALL), *options)
    assert simulated.returncode == 0, simulated.stderr
    told = json.loads(simulated.stdout)
    assert told["report"] is None
    assert [run["ended"] for run in told["runs"]] == ["completed"]
    execution = Path(told["directory"])
    assert {path.name for path in execution.iterdir()} == {"experiment.yaml", "asgd"}
    reported = command.do("report", execution)
    assert reported.returncode == 0, reported.stderr
    found = {path.name for path in execution.iterdir()}
    assert found == {"experiment.yaml", "asgd", "figures", "report.html"}
