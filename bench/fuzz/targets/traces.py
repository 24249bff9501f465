"""Traces of durations, faults, presence and rates, which may be refused by a sentence.

A mutant's first byte chooses the reader.
"""

import io
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from bench.fuzz.memory_file import MemoryFile
from testbed.durations import traces as durations
from testbed.errors import SpecError
from testbed.experiment.rate_trace_files import read_csv, read_mahimahi
from testbed.faults import fault_traces as faults
from testbed.faults.presence import load_presence

_FILE = MemoryFile("trace")
_DEVICES = {f"worker-{i}": i for i in range(3)}

TOKENS = (
    *(b"seconds", b"device", b"time", b"iteration", b"kind", b"lasting", b"uplink", b"downlink"),
    *(b"event", b"worker-0", b"worker-3", b"leaves", b"arrives", b"kill", b"freeze", b"1mbit"),
    *(b",", b'"', b"\n", b"\r", b"\0", b"\xff", b"\xef\xbb\xbf", b"nan", b"-1", b"1e400", b"1_0"),
    *(b"9" * 30, b"9" * 5000, "\u0663".encode(), b"PAR1", b"\x15\x04", b"1s", b"1m", b"0"),
)


def _parquet(columns: dict[str, list[object]]) -> bytes:
    made = io.BytesIO()
    parquet.write_table(pa.table(columns), made)
    return made.getvalue()


_READERS: tuple[tuple[Callable[[Path], object], type[Exception], tuple[bytes, ...]], ...] = (
    (
        durations.load_trace,
        SpecError,
        (
            b"seconds\n0.1\n0.25\n2\n",
            b"device, seconds\nworker-2,0.1\nworker-10,0.2\n\nworker-2,3e-2\n",
            _parquet({"seconds": [0.1, 0.25, 2.0]}),
            _parquet({"device": ["a", "b", "a"], "seconds": [1, 2, 3], "other": [1, 2, 3]}),
        ),
    ),
    (
        partial(faults.load_trace, devices=_DEVICES),
        SpecError,
        (
            b"time,device,kind,lasting\n0.5,worker-0,freeze,0.3\n1,worker-1,kill,\n",
            b"iteration,device\n5,worker-2\n",
        ),
    ),
    (
        partial(load_presence, devices=_DEVICES),
        SpecError,
        (b"device,time,event\nworker-0,1,leaves\nworker-0,2,arrives\nworker-1,3.5,leaves\n",),
    ),
    (
        partial(read_csv, period=None),
        ValueError,
        (b"time,uplink,downlink\n0,1mbit,2mbit\n2,5mbit,0\n3,5mbit,7kbit\n",),
    ),
    (partial(read_mahimahi, bin_seconds=0.5), ValueError, (b"0\n3\n3\n700\n\n1900\n",)),
)


def corpus() -> Sequence[bytes]:
    """Return files of each kind."""
    return [bytes([i]) + file for i, (_, _, files) in enumerate(_READERS) for file in files]


def check(data: bytes) -> bool:
    """Read a trace; return False if it is refused."""
    reads, refusal, _ = _READERS[data[0] % len(_READERS) if data else 0]
    path = _FILE.hold(data[1:])
    try:
        found = reads(path)
    except refusal as error:
        assert str(path) in str(error), error
        assert "\n" not in str(error), error
        return False
    if isinstance(found, durations.DurationTrace):
        assert all(math.isfinite(rows.mean) and len(rows.seconds) for rows in found.devices)
    return True
