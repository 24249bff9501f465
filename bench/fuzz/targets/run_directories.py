"""Files of run directories: all that tables show of a run, which may raise ``NoRunError``.

An input is the name of a file, a line break, and what the file holds in a directory that is otherwise
whole. ``bench.damaged_runs`` damages directories in more ways, for all commands.
"""

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from testbed import simulate
from testbed.results.reading.journals import NoRunError
from testbed.results.reading.recorded_run import RecordedRun

_EXPERIMENT = """
name: read
dataset: digits
model: mlp
training: {updates: 20}
algorithms: [asgd]
devices: {workers: 2}
compute: {distribution: constant, mean: 10ms}
evaluation: {every: 10}
faults: [{who: {devices: [worker-1]}, when: {iteration: 5}, how: kill}]
engine: simulation
clock: virtual
"""
_NAMES = ("manifest.json", "summary.json", "events.jsonl", "faults.jsonl", "spec.yaml", "curve.csv")
TOKENS = (
    *(b"null", b"NaN", b"Infinity", b"-1", b"1e400", b"9" * 30, b"[]", b"{}", b'""', b"[" * 2000),
    *(
        b'"\\u001b[2J"',
        b'"\\ud800"',
        b".inf",
        b".nan",
        b"&a ",
        b"*a",
        b"!!python/none",
        b"\n",
        b"\0",
    ),
    *(b'"running"', b'"diverged"', b'"workers": 0,', b'"pid": -1,', b'"started": "0001-01-01",'),
)


@cache
def _directory() -> Path:
    """Return the directory of a whole run, which goes with this process."""
    folder = Path(tempfile.mkdtemp(prefix="testbed-fuzz-"))
    path = folder / "read.yaml"
    path.write_text(_EXPERIMENT)
    atexit.register(shutil.rmtree, folder)
    (run,) = simulate(path, out=folder / "runs", progress=False)
    return run.directory


def corpus() -> Sequence[bytes]:
    """Return each file of a run."""
    directory = _directory()
    RecordedRun.load(directory).read_all()  # which loads the libraries, before memory is limited
    return [name.encode() + b"\n" + (directory / name).read_bytes() for name in _NAMES]


def check(data: bytes) -> bool:
    """Read a run with one other file; return False if it is refused."""
    name, _, content = data.partition(b"\n")
    if name.decode(errors="replace") not in _NAMES:
        return False
    path = _directory() / name.decode()
    whole = path.read_bytes()
    path.write_bytes(content)
    try:
        RecordedRun.load(path.parent).read_all()
    except NoRunError:
        return False
    finally:
        path.write_bytes(whole)
    return True
