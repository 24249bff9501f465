"""``make golden``: check that simulations end with the bits that they ended with before.

``bench/golden.jsonl`` holds the results of the experiments of ``make agree``, of
``bench.golden_cells``, and of the seeds 1 to 200 of ``make mixtures``, of workers and of peers: how
each run ended, its parameters, its payload and message bytes, its virtual seconds and its faults. A
change of the engine keeps them. One that alters them on purpose writes them anew with
``make golden-write``, and the CHANGELOG says why.

Sums of floats depend on the processor and on torch, which the file names. On other hosts write a file
of your own at the commit before a change (``--write --file mine.jsonl``), and compare with that one.
Exits with status 1 if a result differs, and with 2 if the file holds for another host.
"""

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import yaml

from bench.agree import SPECS, of_parts
from bench.golden_cells import cells
from bench.mixtures import SIMULATION_LIMIT, carry_out, mixture, records
from bench.networks import FOUND, Experiment, write_graph
from bench.peer_mixtures import of_peers
from testbed.experiment.labels import labels
from testbed.experiment.spec import Spec

FILE = Path(__file__).with_suffix(".jsonl")
SEEDS = range(1, 201)
"""The seeds of each kind of mixture."""
_TELL_PERIOD = 30.0
"""Seconds between two lines of progress."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host, as far as sums of floats depend on it.

    Attributes:
        processor: its model.
        instructions: the widest that torch uses on it.
        torch: its version.
    """

    processor: str
    instructions: str
    torch: str


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one run, as far as every later commit has to repeat it.

    Attributes:
        run: the name of its experiment, or of its file and its label.
        ended: a key of ``testbed.run_endings.STATES``.
        seconds: of the virtual clock, during training.
        parameters: the first digits of their SHA-256.
        payload, messages: bytes at the last update.
        drained: bytes of messages once every connection is closed.
        parts: a digest of the parameters and bytes of each peer, server and aggregator.
        faults: the number of records of faults, and a digest of them.
    """

    run: str
    ended: str
    updates: int
    seconds: float
    parameters: str
    payload: int
    messages: int
    drained: int
    parts: str
    faults: str


def experiments() -> Iterator[Experiment]:
    """Yield the experiments, one run each, with the keys of an experiment file."""
    for path in SPECS:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        names = labels(Spec.model_validate(content).algorithms)
        for label, algorithm in zip(names, content["algorithms"], strict=True):
            yield content | {"name": f"{path.stem}-{label}", "algorithms": [algorithm]}
    yield from cells()
    for seed in (*SEEDS, *FOUND):
        yield mixture(seed)
    for seed in SEEDS:
        yield of_peers(seed)


def result(experiment: Experiment, processors: int = 1) -> Result:
    """Simulate an experiment of one run in this process.

    Args:
        processors: on which it computes; results are the same to the bit.

    Raises:
        HungError, TestbedError: as ``bench.mixtures.carry_out``.
    """
    with tempfile.TemporaryDirectory(prefix="testbed-golden-") as folder:
        content = write_graph(experiment, Path(folder)) | {"engine": "simulation"}
        content["simulation"] = content.get("simulation", {}) | {"processors": processors}
        run = carry_out(Spec.model_validate(content), Path(folder), SIMULATION_LIMIT)
        struck = records(run.directory)
    summary = run.summary
    return Result(
        run=experiment["name"],
        ended=summary["ended"],
        updates=summary["updates"],
        seconds=summary["training_seconds"],
        parameters=summary["parameters_sha256"][:16],
        payload=summary["ingress"]["payload_bytes"],
        messages=summary["ingress"]["message_bytes"],
        drained=summary["ingress_after_drain"]["message_bytes"],
        parts=_digest(of_parts(summary)),
        faults=f"{len(struck)} {_digest(struck)}",
    )


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def this_host() -> Host:
    """Return the host that this runs on."""
    import torch

    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    instructions = torch.backends.cpu.get_cpu_capability()
    return Host(models[0] if models else "unknown", instructions, version("torch"))


def read(path: Path) -> tuple[Host, dict[str, Result]]:
    """Return the host of a file of results, and the results by their runs."""
    first, *rest = path.read_text(encoding="utf-8").splitlines()
    found = [Result(**json.loads(line)) for line in rest]
    return Host(**json.loads(first)), {one.run: one for one in found}


def write(path: Path, host: Host, results: Sequence[Result]) -> None:
    """Write a file of results, a line for each."""
    rows = [asdict(host), *(asdict(one) for one in results)]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def differences(expected: Mapping[str, Result], found: Mapping[str, Result]) -> list[str]:
    """Return a sentence for each run whose result is not as expected."""
    told = []
    for run, one in found.items():
        if run not in expected:
            told.append(f"{run}: the file does not have it")
            continue
        before, now = asdict(expected[run]), asdict(one)
        changed = [f"{key} {before[key]} → {now[key]}" for key in now if before[key] != now[key]]
        if changed:
            told.append(f"{run}: {', '.join(changed)}")
    return told


def carry_out_all(
    chosen: Sequence[Experiment], processes: int, processors: int = 1
) -> Iterator[Result | str]:
    """Simulate some experiments at a time; yield their results, or why there is none."""
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        asked = {pool.submit(result, one, processors): one["name"] for one in chosen}
        for one in as_completed(asked):
            try:
                yield one.result()
            except Exception as error:  # whatever a changed engine raises is told with its run
                yield f"{asked[one]}: {type(error).__name__} {error}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare with a file of results, or write it; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.golden", description=__doc__)
    parser.add_argument("--file", type=Path, default=FILE, help="the results; default: %(default)s")
    parser.add_argument("--write", action="store_true", help="write the file anew")
    parser.add_argument("--only", default="", help="runs whose names begin like this")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--processors", type=int, default=1, help="of each simulation; default: %(default)s"
    )
    options = parser.parse_args(arguments)
    if options.write and options.only:
        parser.error("--write writes all runs: leave --only out")
    host = this_host()
    expected: dict[str, Result] = {}
    if not options.write:
        of, expected = read(options.file)
        if of != host:
            print(
                f"{options.file} holds for {of}, and this is {host}: write a file of your own at the "
                "commit before your change, with --write --file, and compare with that",
                file=sys.stderr,
            )
            return 2
    chosen = [one for one in experiments() if one["name"].startswith(options.only)]
    began = last = time.monotonic()
    found: dict[str, Result] = {}
    failed: list[str] = []
    for one in carry_out_all(chosen, options.processes, options.processors):
        if isinstance(one, str):
            failed.append(one)
        else:
            found[one.run] = one
        if time.monotonic() - last > _TELL_PERIOD:
            last = time.monotonic()
            print(f"{len(found)} of {len(chosen)} simulated, {len(failed)} failed", flush=True)
    if options.write:
        if not failed:
            write(options.file, host, [found[one["name"]] for one in chosen])
    else:
        failed += differences(expected, found)
        if not options.only:
            failed += [f"{run}: no experiment any more" for run in expected.keys() - found.keys()]
    for text in failed:
        print(text, file=sys.stderr)
    verb = "written" if options.write else "as before"
    print(f"{len(found) - len(failed)} of {len(chosen)} {verb} ({time.monotonic() - began:.0f} s)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
