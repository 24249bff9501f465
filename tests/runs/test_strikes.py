"""The log of a run's faults: names in place of numbers, and each record once."""

import json
from pathlib import Path

from testbed.device_names import SERVER_NUMBER, server_number
from testbed.faults.fault import Fault
from testbed.runs.deduplication import Deduplication
from testbed.runs.strikes import Strikes
from testbed.telemetry.run_log import RunLog


def events(log: RunLog) -> list[tuple[str, str, str | None]]:
    lines = map(json.loads, (log.directory / "events.jsonl").read_text().splitlines())
    return [(one["level"], one["event"], one["device"]) for one in lines]


def test_a_record_is_written_with_names_and_not_a_second_time(tmp_path: Path) -> None:
    deduplication, log = Deduplication({"faults": 1}), RunLog(tmp_path / "run", "", {})
    strikes = Strikes(log, lambda: 7.5, deduplication, servers=1, workers=9)
    deduplication.back_to({"faults": 0})
    record = Fault(3, "kill", 2.0).record("begin", [SERVER_NUMBER, 4], 6.0, 90)
    strikes.write(record)
    assert events(log) == []  # it is on record already
    strikes.write(record)
    strikes.write(Fault(1, "freeze").record("begin", [4], 6.0, 90))
    lines = (tmp_path / "run" / "faults.jsonl").read_text().splitlines()
    written = [(one["fault"], one["devices"], one["host_time"]) for one in map(json.loads, lines)]
    assert written == [("kill", ["server", "worker-4"], 7.5), ("freeze", ["worker-4"], 7.5)]
    assert events(log) == [
        ("info", "server, worker-4: killed for 2 s", None),
        ("info", "worker-4: frozen for good", "worker-4"),
    ]


def test_one_of_several_servers_has_its_name(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "run", "", {})
    strikes = Strikes(log, lambda: 7.5, Deduplication(), servers=3, workers=9)
    strikes.write(Fault(0, "kill", 2.0).record("begin", [server_number(2)], 6.0, 90))
    assert events(log) == [("info", "server-2: killed for 2 s", "server-2")]
