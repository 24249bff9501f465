"""The run directory, written as the run goes, so that a run that is killed leaves its records.

Rows go to Arrow streams, which need no footer to be read, and become Parquet at the end. Files whose
contents must change (the manifest, which has the run's status, and records that are cut back) are
replaced by renaming, never rewritten in place.
"""

import contextlib
import csv
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa

from testbed.telemetry.journal import Journal
from testbed.telemetry.json_text import json_text
from testbed.telemetry.records import UPDATE
from traffic.counters import COUNTS

CURVE_COLUMNS = (
    "iteration",
    "time",
    "accuracy",
    "loss",
    "payload_bytes",
    "message_bytes",
    "wire_bytes",
)
_EVALUATION_SCHEMA = pa.schema(
    [
        ("iteration", pa.int64()),
        ("time", pa.float64()),
        ("accuracy", pa.float64()),
        ("loss", pa.float64()),
        ("payload_bytes", pa.int64()),
        ("message_bytes", pa.int64()),
        ("wire_bytes", pa.int64()),
    ]
)
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
COUNTER_COLUMNS = tuple(_COUNTER_SCHEMA.names)
_RESERVE = 512 * 1024


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

    @property
    def updates(self) -> npt.NDArray[Any]:
        """The kept rows of updates, of ``records.UPDATE``."""
        return _structured(self.tables["updates"])

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """The kept rows of evaluations, with a value for each of ``CURVE_COLUMNS``."""
        rows: list[dict[str, Any]] = self.tables["evaluations"].to_pylist()
        return rows

    @property
    def records(self) -> list[dict[str, Any]]:
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
        struck: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        """Make the directory, or continue with an earlier one.

        Args:
            directory: must not exist, unless ``kept`` is given.
            spec: the resolved spec as YAML.
            manifest: the entries known at the start; the run's status is added here.
            kept: the part of the earlier directory to begin with. If this call is cut off at any
                moment, it can be repeated.
            struck: called with the record of every fault.
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
            again = kept.resumed | {"at": _now()}
            self._manifest["resumed"] = [*kept.manifest.get("resumed", ()), again]
        self._write_manifest()
        if kept is not None:
            # They describe the end of the earlier session.
            (directory / "summary.json").unlink(missing_ok=True)
            (directory / "parameters.npy").unlink(missing_ok=True)
        tables = kept.tables if kept else {}
        self._updates = Journal(directory, "updates", _UPDATE_SCHEMA, tables.get("updates"))
        evaluations = tables.get("evaluations")
        self._evaluations = Journal(directory, "evaluations", _EVALUATION_SCHEMA, evaluations)
        self.traffic = directory / "traffic"
        self.traffic.mkdir(exist_ok=kept is not None)
        counters = tables.get("counters")
        self._counters = Journal(self.traffic, "counters", _COUNTER_SCHEMA, counters)
        self._curve = self._begin_curve([] if evaluations is None else evaluations.to_pylist())
        self._curve_writer = csv.writer(self._curve, lineterminator="\n")
        self._events = _appending(directory / "events.jsonl")
        self._earlier = _last_time(directory / "events.jsonl")
        self._hears_of_faults = struck
        self._struck: dict[str, set[str]] = {}
        self._faults = self._begin_faults(() if kept is None else kept.faults)

    def _begin_curve(self, rows: Sequence[Mapping[str, float]]) -> IO[str]:
        path = self.directory / "curve.csv"
        partial = path.with_suffix(".partial")
        file = partial.open("w", newline="", encoding="utf-8")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(CURVE_COLUMNS)
        writer.writerows([row[name] for name in CURVE_COLUMNS] for row in rows)
        file.flush()
        partial.replace(path)
        return file

    @property
    def counts(self) -> dict[str, int]:
        """The number of rows of each record that a return to a checkpoint cuts back."""
        return {
            "updates": self._updates.rows,
            "evaluations": self._evaluations.rows,
            "faults": self._fault_count,
        }

    def _begin_faults(self, lines: Sequence[str]) -> IO[str]:
        path = self.directory / "faults.jsonl"
        partial = path.with_suffix(".partial")
        file = partial.open("w", encoding="utf-8")
        file.writelines(line + "\n" for line in lines)
        file.flush()
        partial.replace(path)
        self._fault_count = len(lines)
        for line in lines:
            self._note(json.loads(line))
        return file

    def updates(self, rows: npt.NDArray[Any]) -> None:
        """Append rows of ``records.UPDATE``, applied or not."""
        self._updates.append({name: rows[name] for name in UPDATE.names or ()})

    def go_back(self, version: int, updates: int) -> CutBack:
        """Cut the run back to a version, after the death of the server that had the later ones.

        Evaluations of later versions are removed. Rows of later updates stay, since these reached the
        server, but none of them counts as applied any more.

        Args:
            version: that of the checkpoint from which the server goes on.
            updates: number of the rows of updates up to it.
        """
        lost = np.empty(0, UPDATE)
        curve: list[dict[str, float]] = []

        def strike_out(table: pa.Table) -> pa.Table:
            nonlocal lost
            rows = _structured(table)
            lost = rows[updates:].copy()
            rows["applied"][updates:] = False
            rows["iteration"][updates:] = version
            return pa.table({name: rows[name] for name in UPDATE.names or ()})

        def shorten(table: pa.Table) -> pa.Table:
            shorter = table.filter(table["iteration"].to_numpy() <= version)
            curve.extend(shorter.to_pylist())
            return shorter

        self._updates.rewrite(strike_out)
        self._evaluations.rewrite(shorten)
        self._curve.close()
        self._curve = self._begin_curve(curve)
        self._curve_writer = csv.writer(self._curve, lineterminator="\n")
        return CutBack(lost, len(curve))

    def evaluation(self, row: Mapping[str, float]) -> None:
        """Append one evaluation, with a value for each of ``CURVE_COLUMNS``."""
        self._evaluations.append({name: [row[name]] for name in CURVE_COLUMNS})
        self._curve_writer.writerow([row[name] for name in CURVE_COLUMNS])
        self._curve.flush()

    def counters(
        self, devices: Sequence[str], interfaces: Sequence[str], rows: npt.NDArray[Any]
    ) -> None:
        """Append samples of the links' counters, an array of ``COUNTS``, one row per device."""
        self._counters.append(
            {
                "device": pa.array(devices).dictionary_encode().cast(_COUNTER_SCHEMA[0].type),
                "interface": pa.array(interfaces).dictionary_encode().cast(_COUNTER_SCHEMA[1].type),
                **{name: rows[name] for name in COUNTS.names or ()},
            }
        )

    def event(self, time: float, level: str, text: str, device: str | None = None) -> None:
        """Append an event.

        Args:
            time: seconds since the command began; a resumed run adds the time of its last event.
        """
        line = {
            "time": round(self._earlier + time, 3),
            "level": level,
            "device": device,
            "event": text,
        }
        self._events.write(json_text(line) + "\n")
        self._events.flush()

    def fault(self, record: Mapping[str, Any], devices: Sequence[str], host_time: float) -> None:
        """Append the beginning or the end of a fault.

        Args:
            record: as the clock or the server reports it.
            devices: the names of the devices that it strikes.
            host_time: seconds of the host's clock since training began.
        """
        line = {**record, "devices": list(devices), "host_time": round(host_time, 6)}
        self._faults.write(json_text(line) + "\n")
        self._faults.flush()
        self._fault_count += 1
        if self._hears_of_faults:
            self._hears_of_faults(record)
        self._note(line)

    def _note(self, record: Mapping[str, Any]) -> None:
        if record["phase"] == "begin":
            self._struck.setdefault(record["fault"], set()).update(record["devices"])

    @property
    def struck(self) -> dict[str, int]:
        """The number of different devices that each kind of fault has struck."""
        return {kind: len(devices) for kind, devices in self._struck.items()}

    def parameters(self, vector: npt.NDArray[np.float32]) -> str:
        """Write the final parameters; return the SHA-256 of them as little-endian float32."""
        np.save(self.directory / "parameters.npy", vector)
        return hashlib.sha256(vector.astype("<f4", copy=False).tobytes()).hexdigest()

    def note(self, **known: Any) -> None:
        """Add entries to the manifest that are known only now."""
        self._manifest |= known
        self._write_manifest()

    def give_back_reserve(self) -> None:
        """Free the space reserved for the end of the run."""
        self._reserve.unlink(missing_ok=True)

    def close(self, ended: str, reason: str | None, summary: Mapping[str, Any]) -> None:
        """Write down how the run ended, and close every file."""
        self.give_back_reserve()
        self._manifest |= {"finished": _now(), "ended": ended, "reason": reason}
        if "evaluations_left_out" in summary:
            self._manifest["evaluations_left_out"] = summary["evaluations_left_out"]["count"]
        self._write_manifest()
        _replace(self.directory / "summary.json", json_text(summary, indent=2) + "\n")
        self._curve.close()
        self._events.close()
        self._faults.close()
        self._updates.close()
        self._evaluations.close()
        self._counters.close()

    def _write_manifest(self) -> None:
        _replace(self.directory / "manifest.json", json_text(self._manifest, indent=2) + "\n")


def _structured(table: pa.Table) -> npt.NDArray[Any]:
    """Return rows of updates as an array of ``records.UPDATE``."""
    rows = np.empty(table.num_rows, UPDATE)
    for name in UPDATE.names or ():
        rows[name] = table[name].to_numpy()
    return rows


def _replace(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _appending(path: Path) -> IO[str]:
    """Open a file of lines to append to, and end a last line that a kill cut off."""
    cut_off = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
    file = path.open("a", encoding="utf-8")
    if cut_off:
        file.write("\n")
    return file


def _last_time(path: Path) -> float:
    """Return the time of the last event that can be read; 0 if there is none."""
    for line in reversed(path.read_text(encoding="utf-8", errors="replace").splitlines()):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return float(json.loads(line)["time"])
    return 0.0


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
