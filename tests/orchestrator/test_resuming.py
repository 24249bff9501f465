"""Making room in the directory of a run that goes on."""

from pathlib import Path

from testbed.orchestrator.resuming import Resumption
from testbed.telemetry.run_log import Kept


def resumption(times: int) -> Resumption:
    """Of a run that was resumed so often before."""
    kept = Kept({"resumed": [{}] * times}, {}, (), {})
    return Resumption(kept, None, None, None, host_seconds=0.0, lock=-1)


def test_what_was_captured_before_is_put_aside(tmp_path: Path) -> None:
    traffic = tmp_path / "traffic"
    for times in range(2):
        traffic.mkdir(exist_ok=True)
        (traffic / "ledgers.json").write_text(f"{times}")
        resumption(times).put_traffic_aside(tmp_path)
    found = {str(path.relative_to(traffic)): path.read_text() for path in traffic.glob("*/*")}
    assert found == {"earlier-1/ledgers.json": "0", "earlier-2/ledgers.json": "1"}


def test_a_run_that_was_killed_at_once_has_nothing_to_put_aside(tmp_path: Path) -> None:
    resumption(0).put_traffic_aside(tmp_path)
    assert list(tmp_path.iterdir()) == []
