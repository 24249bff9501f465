"""The run directory, written as the run goes, so that a run that is killed leaves what it had.

Rows go to Arrow streams, which need no footer to be read, and become Parquet at the end. Nothing is
ever overwritten but the manifest, which says how the run stands, and that by renaming.
"""

import csv
import hashlib
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

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
_RESERVE = 512 * 1024


class Journal:
    """Rows that are appended to an Arrow stream and end as a Parquet file."""

    def __init__(self, directory: Path, name: str, schema: pa.Schema) -> None:
        self._stream_path = directory / f"{name}.arrows"
        self._parquet_path = directory / f"{name}.parquet"
        self._schema = schema
        self._file = self._stream_path.open("xb", buffering=0)
        self._encoded = io.BytesIO()
        self._writer = pa.ipc.new_stream(self._encoded, schema)
        self._flush()

    def append(self, columns: Mapping[str, Any]) -> None:
        """Append rows given by columns; they are in the file when this returns.

        Raises:
            OSError: there is no room for them; the file ends with the rows before them.
        """
        self._writer.write_batch(pa.record_batch(dict(columns), schema=self._schema))
        self._flush()

    def _flush(self) -> None:
        """Write what is encoded, all of it or nothing: a batch cut short would hide what follows."""
        data = memoryview(self._encoded.getvalue())
        self._encoded.seek(0)
        self._encoded.truncate()
        end = self._file.tell()
        try:
            while data:
                data = data[self._file.write(data) :]  # on a disk that fills, a part is taken
        except OSError:
            self._file.truncate(end)
            self._file.seek(end)
            raise

    def close(self) -> None:
        """End the stream and replace it by the Parquet file.

        Raises:
            OSError: there is no room for both; the stream is left, which readers take as well.
        """
        self._writer.close()
        self._flush()
        self._file.close()
        partial = self._parquet_path.with_suffix(".partial")
        try:
            with pa.ipc.open_stream(str(self._stream_path)) as reader:
                pq.write_table(reader.read_all(), partial)
            partial.replace(self._parquet_path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        self._stream_path.unlink()


class RunLog:
    """One run's directory; the orchestrator is its only writer, but for the capture's files.

    Attributes:
        directory: the run directory.
        traffic: its folder for the capture, the counters and the account of both.
    """

    def __init__(
        self,
        directory: Path,
        spec: str,
        manifest: dict[str, Any],
        struck: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        """Make the directory.

        Args:
            directory: must not exist.
            spec: the resolved spec as YAML.
            manifest: what is known at the start; how it stands is added here.
            struck: told of the record of every fault, if somebody wants to know.
        """
        directory.mkdir(parents=True)
        self.directory = directory
        # Given back when the disk is full, so that the end of the run can still be written down.
        self._reserve = directory / ".reserve"
        self._reserve.write_bytes(os.urandom(_RESERVE))
        (directory / "spec.yaml").write_text(spec, encoding="utf-8")
        self._manifest = manifest | {
            "format": 1,
            "started": _now(),
            "finished": None,
            "ended": "running",
            "reason": None,
            "pid": os.getpid(),
            "pid_started": psutil.Process().create_time(),
        }
        self._write_manifest()
        self._updates = Journal(directory, "updates", _UPDATE_SCHEMA)
        self._evaluations = Journal(directory, "evaluations", _EVALUATION_SCHEMA)
        self.traffic = directory / "traffic"
        self.traffic.mkdir()
        self._counters = Journal(self.traffic, "counters", _COUNTER_SCHEMA)
        self._curve: IO[str] = (directory / "curve.csv").open("x", newline="", encoding="utf-8")
        self._curve_writer = csv.writer(self._curve, lineterminator="\n")
        self._curve_writer.writerow(CURVE_COLUMNS)
        self._events: IO[str] = (directory / "events.jsonl").open("x", encoding="utf-8")
        self._struck: dict[str, set[str]] = {}
        self._hears_of_faults = struck
        self._faults: IO[str] = (directory / "faults.jsonl").open("x", encoding="utf-8")

    def updates(self, rows: npt.NDArray[Any]) -> None:
        """Append applied updates, an array of ``records.UPDATE``."""
        self._updates.append({name: rows[name] for name in UPDATE.names or ()})

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
        """Append something that happened; ``time`` in seconds since the run began."""
        line = {"time": round(time, 3), "level": level, "device": device, "event": text}
        self._events.write(json.dumps(line) + "\n")
        self._events.flush()

    def fault(self, record: Mapping[str, Any], devices: Sequence[str], host_time: float) -> None:
        """Append the beginning or the end of a fault.

        Args:
            record: as the clock or the server reports it.
            devices: the names of whom it strikes.
            host_time: seconds of the host's clock since training began.
        """
        line = {**record, "devices": list(devices), "host_time": round(host_time, 6)}
        self._faults.write(json.dumps(line) + "\n")
        self._faults.flush()
        if self._hears_of_faults:
            self._hears_of_faults(record)
        if record["phase"] == "begin":
            self._struck.setdefault(record["fault"], set()).update(devices)

    @property
    def struck(self) -> dict[str, int]:
        """How many different devices each kind of fault has struck."""
        return {kind: len(devices) for kind, devices in self._struck.items()}

    def parameters(self, vector: npt.NDArray[np.float32]) -> str:
        """Write the final parameters; returns the SHA-256 of them as little-endian float32."""
        np.save(self.directory / "parameters.npy", vector)
        return hashlib.sha256(vector.astype("<f4", copy=False).tobytes()).hexdigest()

    def give_back_reserve(self) -> None:
        """Free the space kept for the end of the run."""
        self._reserve.unlink(missing_ok=True)

    def close(self, ended: str, reason: str | None, summary: Mapping[str, Any]) -> None:
        """Write down how the run ended, and end every file."""
        self.give_back_reserve()
        self._manifest |= {"finished": _now(), "ended": ended, "reason": reason}
        self._write_manifest()
        _replace(self.directory / "summary.json", json.dumps(summary, indent=2) + "\n")
        self._curve.close()
        self._events.close()
        self._faults.close()
        self._updates.close()
        self._evaluations.close()
        self._counters.close()

    def _write_manifest(self) -> None:
        _replace(self.directory / "manifest.json", json.dumps(self._manifest, indent=2) + "\n")


def _replace(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
