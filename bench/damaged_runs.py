"""Damage run directories at random, and read them by everything that reads runs.

A reader may return a result, or raise the error that a person sees: a sentence that names the file or
the run. Anything else (another exception, a signal, no end) is a finding, and is printed with the
damage. Each reading is a process of its own.

    python -m bench.damaged_runs RUN_DIRECTORY... --count 2000 --seed 1
"""

import argparse
import contextlib
import io
import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 60.0
"""The time in which all readers of a run must have ended."""
_MEMORY = 8 << 30
"""The most bytes of address space that a reader may take beyond what the libraries have."""
_LARGEST = 1 << 30
"""Larger files are damaged already."""
_VALUES: tuple[Any, ...] = (
    None,
    True,
    [],
    {},
    "",
    "\x1b]0;title\x07\x1b[2J",
    "\udcff\u202e<b>$x_1$",
    -1,
    0,
    2**31,
    2**63,
    10**400,
    1e308,
    float("nan"),
    float("inf"),
    [[]] * 3,
    "1970-01-01T00:00:00-23:59",
    "9999-12-31T23:59:59",
)
_BYTES = (b"\0", b"\n", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000)
_WORDS = (
    *("", ".inf", ".nan", "-1", "1e400", "9" * 5000, "[" * 3000, "null", "[]", "{}", "'"),
    *("&a [*a]", "x: [*x]", "!!python/none", "\x1b[2J"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A failure of a reader: the damage, the reader, and its traceback or the signal."""

    damage: str
    reader: str
    what: str


def damage(directory: Path, chance: random.Random) -> str:
    """Damage one file of a run directory; return what was done."""
    files = sorted(
        path
        for path in directory.rglob("*")
        if path.is_file() and not path.is_symlink() and path.stat().st_size < _LARGEST
    )
    path = chance.choice(files)
    ways = [_truncate, _flip, _insert, _delete, _folder, _pipe, _link, _sparse]
    if path.suffix in (".json", ".jsonl"):
        ways += [_json_value] * 8
    elif path.suffix == ".parquet":
        ways += [_table_value] * 6
    elif path.suffix in (".yaml", ".csv"):
        ways += [_word] * 6
    way = chance.choice(ways)
    try:
        told = way(path, chance)
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
    ):  # an earlier damage has left no values in it
        told = _truncate(path, chance)
    return f"{path.relative_to(directory)}: {way.__name__[1:]} {told}"


def _truncate(path: Path, chance: random.Random) -> str:
    at = chance.randrange(path.stat().st_size + 1)
    os.truncate(path, at)
    return f"at {at}"


def _flip(path: Path, chance: random.Random) -> str:
    content = bytearray(path.read_bytes())
    times = chance.choice((1, 1, 4, 40)) if content else 0
    places = [chance.randrange(len(content)) for _ in range(times)]
    for at in places:
        content[at] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    return f"bits at {places[:4]}"


def _insert(path: Path, chance: random.Random) -> str:
    content = path.read_bytes()
    at = chance.randrange(len(content) + 1)
    what = chance.choice((*_BYTES, chance.randbytes(20)))
    path.write_bytes(content[:at] + what + content[at:])
    return f"{what[:8]!r} at {at}"


def _delete(path: Path, chance: random.Random) -> str:
    path.unlink()
    return ""


def _folder(path: Path, chance: random.Random) -> str:
    path.unlink()
    path.mkdir()
    return ""


def _pipe(path: Path, chance: random.Random) -> str:
    path.unlink()
    os.mkfifo(path)
    return ""


def _link(path: Path, chance: random.Random) -> str:
    target = chance.choice(("/dev/zero", "/etc/shadow", "/nowhere", str(path)))
    path.unlink()
    path.symlink_to(target)
    return target


def _sparse(path: Path, chance: random.Random) -> str:
    os.truncate(path, 1 << 40)
    return ""


def _json_value(path: Path, chance: random.Random) -> str:
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    if not lines:
        return "nothing"
    which = chance.randrange(len(lines))
    content = json.loads(lines[which])
    places = list(_places(content, ()))
    if not places:
        return "nothing"
    where = chance.choice(places)
    value = chance.choice(_VALUES)
    at = content
    for key in where[:-1]:
        at = at[key]
    if chance.random() < 0.1 and isinstance(at, dict):
        del at[where[-1]]
    else:
        at[where[-1]] = value
    lines[which] = json.dumps(content)
    path.write_text("\n".join(lines) + "\n")
    return f"{where} = {str(value)[:20]!r}"


def _places(content: Any, before: tuple[Any, ...]) -> Any:
    entries: Any = ()
    if isinstance(content, dict):
        entries = content.items()
    elif isinstance(content, list):
        entries = enumerate(content)
    for key, value in entries:
        yield (*before, key)
        yield from _places(value, (*before, key))


def _table_value(path: Path, chance: random.Random) -> str:
    import pyarrow as pa
    from pyarrow import parquet

    # Threads of a pool would not be there in the processes that read.
    table = parquet.ParquetFile(path).read(use_threads=False)
    if not table.num_columns:
        return "nothing"
    at = chance.randrange(table.num_columns)
    name, column = table.column_names[at], table.column(at)
    way = chance.choice(("drop", "text", "null", "value", "twice", "list"))
    values = column.to_pylist()
    made: Any = None
    if way == "drop":
        table = table.remove_column(at)
    elif way == "twice":
        table = table.append_column(name, column)
    elif way == "text":
        made = pa.array([str(one) for one in values])
    elif way == "list":
        made = pa.array([[one] for one in values])
    elif way == "null":
        made = pa.array([None if chance.random() < 0.3 else one for one in values], column.type)
    elif values:
        extremes: dict[str, list[Any]] = {
            "double": [float("nan"), float("inf"), -1e308, 1e308, -1.0],
            "float": [float("nan"), float("inf"), -1.0],
            "int64": [-1, -(2**63), 2**63 - 1, 2**40],
            "int32": [-1, -(2**31), 2**31 - 1],
            "string": ["", "\x1b[2J", "worker-99999999999999999999", "x" * 1000],
            "bool": [True, False],
        }
        wanted: Any = chance.choice(extremes.get(str(column.type), [None]))
        values[chance.randrange(len(values))] = wanted
        made = pa.array(values, column.type)
    if made is not None:
        table = table.set_column(at, name, made)
    parquet.write_table(table, path)
    return f"{way} {name}"


def _word(path: Path, chance: random.Random) -> str:
    lines = path.read_text().split("\n")
    which = chance.randrange(len(lines))
    value = chance.choice(_WORDS)
    before, colon, _ = lines[which].partition(":")
    lines[which] = f"{before}{colon} {value}" if colon else f"{lines[which]}{value}"
    path.write_text("\n".join(lines))
    return f"line {which} {value[:20]!r}"


def readers(directory: Path, chance: random.Random) -> Mapping[str, Callable[[], object]]:
    """Return what reads a run: each by its name, the quick ones always, figures rarely."""
    from testbed.cli import results
    from testbed.cli.shown_runs import all_runs
    from testbed.library.reading import Run as LibraryRun
    from testbed.metrics.replay import replayed
    from testbed.results.reading.recorded_run import RecordedRun
    from testbed.runs import resuming
    from testbed.runs.live_status import LiveStatus
    from testbed.simulation.simulated_devices import STORED

    root = directory.parents[2]

    def library() -> None:
        run = LibraryRun(RecordedRun.load(directory))
        repr(run)
        run.updates()
        run.evaluations()
        run.events()

    def replay() -> None:
        for one in replayed(all_runs([str(directory)], root)):
            one.advance(one.duration)

    def live() -> None:
        LiveStatus(RecordedRun.load(directory)).look(running=True)

    def resume() -> None:
        run = RecordedRun.load(directory)
        if run.ended not in ("completed", "diverged"):
            resuming.prepare(run, STORED).close()

    found: dict[str, Callable[[], object]] = {
        "ls": lambda: results.ls(root),
        "ls --json": lambda: results.ls(root, True),
        "show": lambda: results.show(str(directory), root),
        "show --json": lambda: results.show(str(directory), root, None, True),
        "library": library,
        "replay": replay,
        "top": live,
        "resume": resume,
    }
    if chance.random() < 0.05:
        out = directory.parent / "made"
        found["compare"] = lambda: results.compare([str(directory)], runs=root, out=out / "c.svg")
        found["report"] = lambda: results.report([str(directory)], runs=root, out=out / "r.html")
    return found


def read(directory: Path, chance: random.Random, told: str) -> list[Finding]:
    """Read a damaged run by all readers, in a process of its own; return what went wrong."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as out, contextlib.suppress(BaseException):
            _read_all(directory, chance, out)
        os._exit(0)
    os.close(writing)
    text = b""
    late = False
    with os.fdopen(reading, "rb", buffering=0) as source:
        while True:
            late = not select.select([source], [], [], SECONDS)[0]
            part = b"" if late else source.read(1 << 16)
            if not part:
                break
            text += part
    if late:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    found, reader = [], "none"
    for line in text.decode(errors="replace").splitlines():
        entry = json.loads(line)
        reader = entry["reader"]
        if "what" in entry:
            found.append(Finding(told, reader, entry["what"]))
    if late:
        found.append(Finding(told, reader, f"no end within {SECONDS:g} s"))
    elif os.WIFSIGNALED(status):
        found.append(Finding(told, reader, f"ended by signal {os.WTERMSIG(status)}"))
    return found


def _read_all(directory: Path, chance: random.Random, out: io.TextIOBase) -> None:
    import resource

    from testbed.errors import TestbedError

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, resource.RLIM_INFINITY))
    for name, reader in readers(directory, chance).items():
        out.write(json.dumps({"reader": name}) + "\n")
        out.flush()
        shown = io.StringIO()
        what = None
        try:
            with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
                reader()
        except TestbedError as error:
            text = str(error)
            if "\n" in text.strip() and not text.startswith(str(directory)):
                what = f"several lines: {text[:300]}"
            elif directory.name not in text:
                what = f"names no file: {text[:300]}"
        except BaseException:
            what = traceback.format_exc()[-3000:]
        if what is None and any(ord(one) < 32 and one != "\n" for one in shown.getvalue()):
            what = f"control characters: {shown.getvalue()[:300]!r}"
        if what is not None:
            out.write(json.dumps({"reader": name, "what": what}) + "\n")
            out.flush()


def try_damages(
    originals: Sequence[Path], count: int, seed: int, tell: Callable[[str], None] = print
) -> list[Finding]:
    """Damage copies of run directories and read them; return what went wrong.

    Args:
        originals: run directories, ``experiment/time-seed/algorithm``.
        count: the number of damages.
        seed: of the damages.
        tell: called with each finding, as it is found.
    """
    import testbed.cli.results
    import testbed.cli.shown_runs
    import testbed.library.reading
    import testbed.metrics.replay
    import testbed.results.figures.chart_files
    import testbed.results.report.report
    import testbed.simulation.simulated_devices  # noqa: F401 - read once, before the forks

    found = []
    with tempfile.TemporaryDirectory(prefix="testbed-damaged-") as folder:
        for number in range(count):
            chance = random.Random(f"{seed}:{number}")
            original = chance.choice(originals)
            root = Path(folder, str(number))
            copy = root.joinpath(*original.parts[-3:])
            shutil.copytree(original, copy)
            told = f"{seed}:{number} {original.parent.parent.name}/{original.name}: "
            told += "; ".join(damage(copy, chance) for _ in range(chance.choice((1, 1, 1, 2, 3))))
            for one in read(copy, chance, told):
                tell(f"{one.damage}\n  {one.reader}: {one.what}")
                found.append(one)
            shutil.rmtree(root)
    return found


def main() -> int:
    """Run the command line; return 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="run directories that are whole")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    originals = [path.resolve() for path in arguments.runs]
    found = try_damages(originals, arguments.count, arguments.seed)
    print(f"{arguments.count:,} damages, {len(found):,} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
