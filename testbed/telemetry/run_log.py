"""The run directory, written as the run goes, so that a run that is killed leaves its records.

Rows go to Arrow streams, which need no footer to be read, and become Parquet at the end. Files whose
contents must change (the manifest, which has the run's status, and records that are cut back) are
replaced by renaming, never rewritten in place.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa

from testbed.faults.descriptions import describe
from testbed.messages.fault_changes import RecordedChange
from testbed.messages.reports import Suspected, Welcomed
from testbed.run_endings import SummaryContent
from testbed.telemetry.end_tables import UTILISATION
from testbed.telemetry.entries import (
    Diagnoses,
    EnergyUsed,
    EvaluationMade,
    FaultChanged,
    Noted,
    Reader,
    RunEntry,
    Updates,
)
from testbed.telemetry.evaluation_log import MEASURED, EvaluationLog
from testbed.telemetry.event_kinds import EventKind
from testbed.telemetry.json_text import json_text
from testbed.telemetry.table_journal import Journal
from testbed.telemetry.text_files import append_to, begin_with, replace_text
from testbed.telemetry.update_rows import UPDATE
from testbed.untrusted_text import printable
from traffic.counters import COUNTS

_UPDATE_SCHEMA = pa.schema(
    [(name, pa.from_numpy_dtype(UPDATE[name])) for name in UPDATE.names or ()]
)
_COUNTER_SCHEMA = pa.schema(
    [
        ("device", pa.dictionary(pa.int16(), pa.string())),
        ("interface", pa.dictionary(pa.int16(), pa.string())),
        *((name, pa.from_numpy_dtype(COUNTS[name])) for name in COUNTS.names or ()),
    ]
)
_ENERGY_SCHEMA = pa.schema([("time", pa.float64()), ("joules", pa.float64())])
ENERGY_COLUMNS = tuple(_ENERGY_SCHEMA.names)
COUNTER_COLUMNS = tuple(_COUNTER_SCHEMA.names)
_RESERVE = 512 * 1024


class FaultLog:
    """``faults.jsonl``: a line for the beginning of every fault and another for its end.

    Attributes:
        count: number of records.
    """

    def __init__(self, directory: Path, kept: Sequence[str]) -> None:
        """Replace the file by the lines of the earlier one that are kept."""
        self._file = begin_with(directory / "faults.jsonl", kept)
        self.count = len(kept)

    def append(self, record: RecordedChange) -> None:
        """Append a record, with the names of its devices."""
        self._file.write(json_text(record) + "\n")
        self._file.flush()
        self.count += 1

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class Kept:
    """The part of an earlier run directory with which a resumed run begins.

    Attributes:
        manifest: the earlier manifest.
        tables: the rows that are kept, by the names of their journals.
        faults: the lines of ``faults.jsonl`` that are kept.
        resumed: the manifest's entry on the resumption: its version, and the seconds trained before.
    """

    manifest: Mapping[str, Any]
    tables: Mapping[str, pa.Table]
    faults: Sequence[str]
    resumed: dict[str, Any]

    def entries(self) -> Iterator[RunEntry]:
        """Yield the kept entries of updates, evaluations and faults."""
        if self.tables["updates"].num_rows:
            yield Updates(self.updates, self.resumed["version"])
        for row in self.evaluations:
            yield EvaluationMade(row)
        for record in self.records:
            yield FaultChanged(record, record["devices"], record["host_time"])

    @property
    def updates(self) -> npt.NDArray[Any]:
        """The kept rows of updates, of ``records.UPDATE``."""
        return _structured(self.tables["updates"])

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """The kept rows of evaluations, as ``EvaluationLog.append`` takes them."""
        rows: list[dict[str, Any]] = self.tables["evaluations"].to_pylist()
        measure = (self.manifest.get("measure") or {}).get("name")
        for row in rows:
            row[MEASURED] = None if measure is None else row[measure]
        return rows

    @property
    def records(self) -> list[RecordedChange]:
        """The kept records of faults."""
        return [json.loads(line) for line in self.faults]


@dataclass(frozen=True, slots=True)
class CutBack:
    """The change to a run that was cut back to an earlier version.

    Attributes:
        lost: the later rows of ``records.UPDATE``, as they were.
        evaluations: the number of evaluations left.
    """

    lost: npt.NDArray[Any]
    evaluations: int


class RunLog:
    """One run's directory; only the orchestrator writes to it, except for the capture's files.

    Attributes:
        directory: the run directory.
        traffic: its folder for the capture, the counters and the accounting of both.
    """

    def __init__(
        self,
        directory: Path,
        spec: str,
        manifest: dict[str, Any],
        *,
        kept: Kept | None = None,
        readers: Sequence[Reader] = (),
        show: Callable[[str, str], None] | None = None,
        name: Callable[[int], str] = str,
        began: float | None = None,
    ) -> None:
        """Make the directory, or continue with an earlier one.

        Args:
            directory: must not exist, unless ``kept`` is given.
            spec: the resolved spec as YAML.
            manifest: the entries known at the start; the run's status is added here.
            kept: the part of the earlier directory to begin with. If this call is cut off at any
                moment, it can be repeated.
            readers: are shown every entry, those of ``kept`` first.
            show: is called with the level and the text of each warning and error, if given.
            name: returns the name of a worker or peer by its number.
            began: when the command began, in seconds of CLOCK_MONOTONIC; None: now.
        """
        if kept is None:
            directory.mkdir(parents=True)
        self.directory = directory
        # Freed when the disk is full, so that the end of the run can still be written down.
        self._reserve = directory / ".reserve"
        self._reserve.write_bytes(os.urandom(_RESERVE))
        if kept is None:
            (directory / "spec.yaml").write_text(spec, encoding="utf-8")
        self._manifest = manifest | {
            "format": 1,
            "started": kept.manifest["started"] if kept else _now(),
            "finished": None,
            "ended": "running",
            "reason": None,
            "pid": os.getpid(),
            "pid_started": psutil.Process().create_time(),
        }
        if kept is not None:
            session = kept.resumed | {"at": _now()}
            self._manifest["resumed"] = [*kept.manifest.get("resumed", ()), session]
        self._write_manifest()
        if kept is not None:
            # They describe the end of the earlier session.
            (directory / "summary.json").unlink(missing_ok=True)
            (directory / "parameters.npy").unlink(missing_ok=True)
            (directory / UTILISATION).unlink(missing_ok=True)
        tables = kept.tables if kept else {}
        self._updates = Journal(directory, "updates", _UPDATE_SCHEMA, tables.get("updates"))
        measure = (self._manifest.get("measure") or {}).get("name")
        exact = self._manifest.get("exact", ())
        self._evaluations = EvaluationLog(directory, tables.get("evaluations"), measure, exact)
        self._diagnostics: Journal | None = None
        if declared := self._manifest.get("diagnostics"):
            columns = [
                ("iteration", pa.int64()),
                *((one["name"], pa.float64()) for one in declared),
            ]
            kept_rows = tables.get("diagnostics")
            self._diagnostics = Journal(directory, "diagnostics", pa.schema(columns), kept_rows)
        self._energy: Journal | None = None
        if self._manifest.get("energy"):
            self._energy = Journal(directory, "energy", _ENERGY_SCHEMA, tables.get("energy"))
        self.traffic = directory / "traffic"
        self.traffic.mkdir(exist_ok=kept is not None)
        self._counters = Journal(self.traffic, "counters", _COUNTER_SCHEMA, tables.get("counters"))
        self._events = append_to(directory / "events.jsonl")
        self._earlier = _last_time(directory / "events.jsonl")
        self._faults = FaultLog(directory, () if kept is None else kept.faults)
        self._readers, self._show, self._name = readers, show, name
        self._began = time.monotonic() if began is None else began
        for entry in kept.entries() if kept else ():
            self._show_readers(entry)

    @property
    def counts(self) -> dict[str, int]:
        """The number of rows of each record that a return to a checkpoint cuts back."""
        return {
            "updates": self._updates.rows,
            "evaluations": self._evaluations.rows,
            "faults": self._faults.count,
        }

    def take(self, entry: RunEntry) -> None:
        """Write an entry down, and show it to the readers; show a warning to the watcher."""
        match entry:
            case Updates(rows, _):
                self._updates.append({name: rows[name] for name in UPDATE.names or ()})
            case Diagnoses(values, version):
                self._diagnose(values, version)
            case EvaluationMade(row):
                self._evaluations.append(row)
            case EnergyUsed(when, joules):
                assert self._energy is not None
                self._energy.append({"time": [when], "joules": [joules]})
            case FaultChanged(record, devices, host_time):
                at = {"devices": list(devices), "host_time": round(host_time, 6)}
                self._faults.append(cast("RecordedChange", {**record, **at}))
                about = devices[0] if len(devices) == 1 else None
                self._event(Noted("info", describe(record, devices), about))
            case Suspected(worker):
                self._event(Noted("warning", str(entry), self._name(worker), EventKind.SUSPECTED))
            case Welcomed(worker):
                self._event(Noted("info", str(entry), self._name(worker), EventKind.WELCOMED))
            case Noted():
                self._event(entry)
        self._show_readers(entry)

    def _show_readers(self, entry: RunEntry) -> None:
        for reader in self._readers:
            reader.take(entry)

    def _diagnose(self, values: npt.NDArray[np.float64], version: int) -> None:
        """Append diagnostics.

        There is one row for each update, so that the rows on record say which of these a restored
        server repeats; they are left out.
        """
        assert self._diagnostics is not None
        new = version - self._diagnostics.rows
        if new > 0:
            names = [one["name"] for one in self._manifest["diagnostics"]]
            columns = dict(zip(names, values[-new:].T, strict=True))
            iterations = np.arange(version - new, version) + 1
            self._diagnostics.append({"iteration": iterations, **columns})

    def go_back(self, version: int, updates: int, server: int | None = None) -> CutBack:
        """Cut the run back to a version, after the death of the server that had the later ones.

        Evaluations and diagnostics of later versions are removed. Rows of later updates stay, since
        these reached the server, but none of them counts as applied any more. Of several servers only
        one goes back: evaluations stay, and diagnostics, which are the first one's, unless it is that.

        Args:
            version: that of the checkpoint from which the server goes on.
            updates: number of the rows of updates up to it.
            server: the index of the server, of several; None if there is one.
        """
        lost = np.empty(0, UPDATE)

        def strike_out(table: pa.Table) -> pa.Table:
            nonlocal lost
            rows = _structured(table)
            struck = np.arange(len(rows)) >= updates
            if server is not None:
                struck &= rows["server"] == server
            lost = rows[struck]
            rows["applied"][struck] = False
            rows["iteration"][struck] = version
            return pa.table({name: rows[name] for name in UPDATE.names or ()})

        self._updates.rewrite(strike_out)
        if server is None:
            self._evaluations.cut_back(version)
        if self._diagnostics is not None and not server:
            self._diagnostics.rewrite(lambda table: table.slice(0, version))
        return CutBack(lost, self._evaluations.rows)

    def counters(
        self, devices: Sequence[str], interfaces: Sequence[str], rows: npt.NDArray[Any]
    ) -> None:
        """Append samples of the links' counters, an array of ``COUNTS``, one row per device."""
        self._counters.append(
            {
                "device": pa.array(devices)
                .dictionary_encode()
                .cast(_COUNTER_SCHEMA.field("device").type),
                "interface": pa.array(interfaces)
                .dictionary_encode()
                .cast(_COUNTER_SCHEMA.field("interface").type),
                **{name: rows[name] for name in COUNTS.names or ()},
            }
        )

    def _event(self, event: Noted) -> None:
        """Append a line; its time in a resumed run goes on from that of the last event before."""
        line = {
            "time": round(self._earlier + time.monotonic() - self._began, 3),
            "level": event.level,
            "kind": event.kind,
            "device": event.device,
            "event": event.text,
        }
        self._events.write(json_text(line) + "\n")
        self._events.flush()
        if self._show and event.level != "info" and event.kind != EventKind.ENDED:
            whose = event.device is not None and event.device not in event.text
            text = f"{event.device}: {event.text}" if whose else event.text
            # It may have what a device says, which must not act on a terminal.
            self._show(event.level, "\n".join(map(printable, text.split("\n"))))

    def parameters(self, vector: npt.NDArray[np.float32]) -> None:
        """Write the final parameters."""
        np.save(self.directory / "parameters.npy", vector)

    def note(self, **known: Any) -> None:
        """Add entries to the manifest that are known only now."""
        self._manifest |= known
        self._write_manifest()

    def give_back_reserve(self) -> None:
        """Free the space reserved for the end of the run."""
        self._reserve.unlink(missing_ok=True)

    def close(self, ended: str, reason: str | None, summary: SummaryContent) -> None:
        """Write down how the run ended, and close every file."""
        self.give_back_reserve()
        self._manifest |= {"finished": _now(), "ended": ended, "reason": reason}
        if "evaluations_left_out" in summary:
            self._manifest["evaluations_left_out"] = summary["evaluations_left_out"]["count"]
        self._write_manifest()
        replace_text(self.directory / "summary.json", json_text(summary, indent=2) + "\n")
        self._events.close()
        self._faults.close()
        self._updates.close()
        self._evaluations.close()
        if self._diagnostics is not None:
            self._diagnostics.close()
        if self._energy is not None:
            self._energy.close()
        self._counters.close()

    def _write_manifest(self) -> None:
        replace_text(self.directory / "manifest.json", json_text(self._manifest, indent=2) + "\n")


def _structured(table: pa.Table) -> npt.NDArray[Any]:
    """Return rows of updates as an array of ``records.UPDATE``."""
    rows = np.empty(table.num_rows, UPDATE)
    for name in UPDATE.names or ():
        rows[name] = table[name].to_numpy()
    return rows


def _last_time(path: Path) -> float:
    """Return the time of the last event that can be read; 0 if there is none."""
    for line in reversed(path.read_text(encoding="utf-8", errors="replace").splitlines()):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return float(json.loads(line)["time"])
    return 0.0


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
