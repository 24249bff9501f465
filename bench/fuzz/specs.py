"""``make fuzz``: experiment files over every key of the schema, valid and slightly wrong.

Each seed takes an experiment (one of ``experiments/agree*.yaml``, a mixture, a mixture of peers) and
sets keys that the schema has, each to a value that it allows; what is then refused is left out again.
Every second seed's file gets one mistake besides. What must hold:

- A file is read, or refused in sentences: no other exception, no text of a library's.
- ``plan`` describes what is read, and what it resolves to is read as the same experiment.
- What ``plan`` accepts, the simulator carries out to an end that it names, within a time.
- Namespaces end with the same parameters, bytes and records as the simulator.

Prints each seed that fails, with its file. ``--plan``, ``--simulate`` and ``--emulate`` say how many
seeds get so far; runs are of the files without a mistake that are small enough.
"""

import argparse
import contextlib
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import yaml

from bench.agree import SPECS
from bench.fuzz.values import Schema, Values, places, spoilt, with_value
from bench.mixtures import Ended, carry_out, differences, mixture
from bench.networks import write_graph
from bench.peer_mixtures import of_peers
from testbed.cli import plan_text
from testbed.doctor.requirements import problems
from testbed.errors import HostError, SpecError, TestbedError
from testbed.experiment.load import dump, json_schema, load, load_resolved
from testbed.experiment.spec import Spec
from testbed.planning import plan as planning
from testbed.run_endings import is_complete

OPTIONS = 8
"""The most keys that are set in a file."""
_PROGRESS = 60.0
"""Seconds from one line of progress to the next."""
PLAN_LIMIT, RUN_LIMIT = 20.0, 300.0
"""Seconds that reading and planning, and a run, may take on a busy host."""
_NEVER = ("name", "engine", "clock", "sweep", "plugins", "runtime", "launch", "image", "cuda")
"""Keys that a run of ours sets itself, or that need what a host may lack."""
_MOST = {"updates": 30, "workers": 8, "images": 60, "batch_size": 16, "servers": 4}
"""The largest values of keys that decide how long a run takes."""
_SMALL_MODELS = ("mlp", "cnn", "cnn-small", "cnn-5x5")
_LIBRARYS = re.compile(
    r"Traceback|<class|object at 0x|pydantic|validation error|Input should|NoneType"
    r"|^\w*(Error|Exception)\b|unhashable|not subscriptable|unexpected keyword"
)
"""Text that a person should not read in a refusal."""
_EMPTY = re.compile(r"(\S+:\d+: )?(\S+: ?)?")
"""A refusal that names a place and says nothing of it."""
_LONGEST = 1500
"""The most characters of one line of a refusal; it may quote a long value."""
_FILES = {
    "trace.csv": "seconds\n0.01\n0.02\n0.05\n",
    "rates.csv": "time,uplink,downlink\n0,1mbit,2mbit\n2,5mbit,5mbit\n",
    "presence.csv": "device,time,event\nworker-0,1,leaves\nworker-0,2,arrives\nworker-1,3,leaves\n",
    "struck.csv": "time,device,kind,lasting\n0.5,worker-0,freeze,0.3\n1,worker-1,kill,0.2\n",
    "campus.graphml": (
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="undirected">'
        '<node id="a"/><node id="b"/><edge source="a" target="b"/></graph></graphml>'
    ),
    "rules.py": "def nothing() -> None:\n    pass\n",
}
_BY_KEY = {
    "file": ("trace.csv", "rates.csv", "campus.graphml", "rules.py"),
    "trace": ("rates.csv", "struck.csv"),
    "presence": ("presence.csv",),
    "uplink": ("10mbit", "500kbit", "unlimited"),
    "downlink": ("20mbit", "1mbit", "unlimited"),
    "plugins": ("rules.py",),
}


class LateError(Exception):
    """Something does not end within its time."""


@contextlib.contextmanager
def _within(seconds: float) -> Iterator[None]:
    def late(_number: int, _frame: FrameType | None) -> None:
        raise LateError(f"it did not end within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Generator:
    """Makes the experiment file of each seed, in a folder with the files that it may name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._schema: Schema = json_schema()
        self._values = Values(self._schema, _BY_KEY)
        for name, text in _FILES.items():
            (folder / name).write_text(text, encoding="utf-8")

    def read(self, data: Any) -> Spec:
        """Write a document as an experiment file and read it; raise what reading raises."""
        path = self._folder / "spec.yaml"
        text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        return load(path)

    def base(self, seed: int) -> dict[str, Any]:
        """Return the experiment that a seed begins with."""
        draw = np.random.default_rng([2020, seed])
        kind = draw.random()
        if kind < 0.4:
            text = SPECS[int(draw.integers(len(SPECS)))].read_text(encoding="utf-8")
            data: dict[str, Any] = yaml.safe_load(text)
            data["algorithms"] = [data["algorithms"][int(draw.integers(len(data["algorithms"])))]]
        else:
            data = write_graph(mixture(seed) if kind < 0.8 else of_peers(seed), self._folder)
        return _small({**data, "seed": seed})

    def valid(self, seed: int, refused: list[SpecError]) -> dict[str, Any]:
        """Return a file that can be read, with some keys set; ``refused`` gets the refusals."""
        draw = np.random.default_rng([2021, seed])
        data = self.base(seed)
        for step in range(int(draw.integers(1, OPTIONS + 1))):
            candidates = self._keys(data, self._schema)
            at, schema = candidates[int(draw.integers(len(candidates)))]
            if (
                step == 0 and draw.random() < 0.4
            ):  # most algorithms are in no experiment to begin with
                at, schema = ("algorithms", 0), self._schema["properties"]["algorithms"]["items"]
            changed = _small(with_value(data, at, self._values.of(schema, draw, str(at[-1]))))
            try:
                self.read(changed)
            except SpecError as error:
                refused.append(error)
            else:
                data = changed
        return data

    def _keys(
        self, data: Any, schema: Schema, at: tuple[str | int, ...] = ()
    ) -> list[tuple[tuple[str | int, ...], Schema]]:
        """Return the paths of all keys that a document could have, with their schemas."""
        schema = self._values.resolved(schema)
        if isinstance(data, list):
            items = schema.get("items", {})
            return [one for i, item in enumerate(data) for one in self._keys(item, items, (*at, i))]
        if not isinstance(data, dict):
            return []
        found = []
        for option in self._alternatives(schema):
            keys = option.get("properties", {})
            fits = all(
                keys.get(key, {}).get("const", value) == value for key, value in data.items()
            )
            if not fits or not keys.keys() >= data.keys():
                continue
            for key, one in keys.items():
                if key not in _NEVER:
                    found.append(((*at, key), one))
                    found += self._keys(data.get(key), one, (*at, key))
            break
        return found

    def _alternatives(self, schema: Schema) -> Iterator[Schema]:
        schema = self._values.resolved(schema)
        yield schema
        for several in ("anyOf", "oneOf"):
            for one in schema.get(several, ()):
                yield from self._alternatives(one)


def _small(data: dict[str, Any]) -> dict[str, Any]:
    """Return an experiment whose run takes seconds: what decides its length is limited."""
    for at in places(data):
        most = _MOST.get(str(at[-1]))
        value: Any = data
        for key in at:
            value = value[key]
        if most is not None and isinstance(value, int) and value > most:
            data = with_value(data, at, most)
    return data


def unclear(error: TestbedError) -> str | None:
    """Return what a person could not make sense of in a refusal; None if nothing."""
    for line in str(error).splitlines() or [""]:
        if _EMPTY.fullmatch(line) or len(line) > _LONGEST or _LIBRARYS.search(line):
            return f"unclear refusal: {line[:300]}"
    return None


def planned(generator: Generator, data: Any, folder: Path) -> tuple[str, list[str]]:
    """Read and plan a file; return ``accepted`` or ``refused``, and what does not hold."""
    try:
        with _within(PLAN_LIMIT):
            spec = generator.read(data)
            plans = planning.plan(spec)
            list(plan_text.describe(plans))
            for plan in plans:
                plan_text.as_json(plan)
            resolved = folder / "resolved.yaml"
            resolved.write_text(dump(spec), encoding="utf-8")
            if load_resolved(resolved) != spec:
                return "accepted", ["the resolved file is another experiment"]
    except TestbedError as error:
        found = unclear(error)
        return "refused", [found] if found else []
    except (Exception, LateError) as error:
        return "failed", [_told(error)]
    return "accepted", []


def _told(error: BaseException) -> str:
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} {error} ({Path(at.filename).name}:{at.lineno})"[:500]


def can_run(data: dict[str, Any]) -> bool:
    """Return True if a run of the file takes seconds."""
    model = data.get("model")
    name = model.get("name") if isinstance(model, dict) else model
    return name in _SMALL_MODELS and data.get("dataset") == "digits" and "exact" not in str(data)


def carried_out(
    generator: Generator, data: Any, folder: Path, *, emulate: bool
) -> list[str] | None:
    """Simulate a file, and emulate it; return what does not hold, None if it is not for both."""
    made = {**data, "engine": "simulation", "clock": "virtual"}
    try:
        spec = generator.read(made)
        emulated = generator.read({**made, "engine": "emulation"}) if emulate else spec
        # What this host lacks `run` says before it starts anything.
        for one in (spec, emulated):
            for problem in problems(planning.plan(one), folder):
                raise problem
    except (SpecError, HostError):
        return None  # it asks for the wall clock, or a simulation or this host cannot do it
    runs = []
    for one in (spec, emulated)[: 1 + emulate]:
        try:
            runs.append(carry_out(one, folder, RUN_LIMIT))
        except SpecError as error:
            return [f"{one.engine}: plan accepts what a run refuses: {error}"]
        except Exception as error:
            return [f"{one.engine}: {_told(error)}"]
        if any(runs[-1].directory.rglob("traceback.txt")):
            return [f"{one.engine}: {runs[-1].summary['reason']}, with a traceback"]
    return _compared(runs[1], runs[0]) if emulate else []


def _compared(emulated: Ended, simulated: Ended) -> list[str]:
    """Return what differs; of runs that could not be completed only how far they came."""
    ends = [(one.summary["ended"], one.summary["updates"]) for one in (emulated, simulated)]
    if all(is_complete(ended) for ended, _ in ends):
        return differences(emulated, simulated)
    return [] if ends[0] == ends[1] else [f"emulation: {ends[0]}, simulation: {ends[1]}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Try seeds; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.fuzz.specs", description=__doc__)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--plan", type=int, default=5000, help="files that are read and planned")
    parser.add_argument("--simulate", type=int, default=300, help="runs in the simulator")
    parser.add_argument("--emulate", type=int, default=100, help="of them also in namespaces")
    options = parser.parse_args(arguments)
    began = said = time.monotonic()
    counts: Counter[str] = Counter()
    failed: list[int] = []
    seed = options.first
    while counts["planned"] < options.plan or counts["simulated"] < options.simulate:
        with tempfile.TemporaryDirectory(prefix="testbed-fuzz-") as made:
            found, data = _try(seed, Path(made), counts, options)
        if found:
            failed.append(seed)
            text = yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=110)
            print(f"seed {seed} FAILS: {'; '.join(found)}\n{text}", flush=True)
        if time.monotonic() - said > _PROGRESS:
            said = time.monotonic()
            print(f"seed {seed}: {_told_counts(counts)}, {len(failed)} failed", flush=True)
        seed += 1
    print(f"{_told_counts(counts)}; {len(failed)} seeds failed ({time.monotonic() - began:.0f} s)")
    if failed:
        print(f"failed: {','.join(map(str, failed))}", file=sys.stderr)
    return 1 if failed else 0


def _told_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))


def _try(
    seed: int, folder: Path, counts: Counter[str], options: argparse.Namespace
) -> tuple[list[str], Any]:
    """Try one seed; return what does not hold, and the file."""
    generator = Generator(folder)
    refused: list[SpecError] = []
    try:
        data = generator.valid(seed, refused)
    except Exception as error:
        return [_told(error)], generator.base(seed)
    found = [text for error in refused if (text := unclear(error))]
    counts["keys refused"] += len(refused)
    wrong = seed % 2 == 0
    told: Any = spoilt(data, np.random.default_rng([2022, seed])) if wrong else data
    verdict, problems = planned(generator, told, folder)
    counts["planned"] += 1
    counts[verdict] += 1
    found += problems
    holds = verdict == "accepted" and not found and not wrong
    if holds and counts["simulated"] < options.simulate and can_run(data):
        emulate = counts["emulated"] < options.emulate
        if (ended := carried_out(generator, data, folder, emulate=emulate)) is not None:
            counts["simulated"] += 1
            counts["emulated"] += emulate
            found += ended
    return found, told


if __name__ == "__main__":
    sys.exit(main())
