"""The examples of programs of users: run each, or strike Flower with random faults.

    python -m bench.programs run [flower torchrun mpi hivemind]
    python -m bench.programs chaos --seeds 1-30

Each example runs in an environment of its own, made from its requirements and kept below
``build/programs`` until they change. Packages that this environment has already, such as torch, are
borrowed from it.
"""

import argparse
import contextlib
import hashlib
import json
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bench.chaos import seeds_of
from testbed.nodes import control_group

REPOSITORY = Path(__file__).parents[1]
EXAMPLES = REPOSITORY / "examples" / "programs"
NAMES = ("flower", "torchrun", "mpi", "hivemind")
BUILD = REPOSITORY / "build" / "programs"
WORKERS, ROUNDS, LIMIT = 4, 3, 100
"""The size of a run of Flower under random faults; the limit in seconds."""
BORROWED = ("torch", "numpy", "scikit-learn")


@dataclass(frozen=True, slots=True)
class Ran:
    """A run of an example.

    Attributes:
        status: of the command.
        errors: its standard error.
        directory: the run directory; None if there is none.
    """

    status: int
    errors: str
    directory: Path | None

    @property
    def summary(self) -> dict[str, Any]:
        """The content of its summary; empty without one."""
        if self.directory is None or not (self.directory / "summary.json").exists():
            return {}
        content: dict[str, Any] = json.loads((self.directory / "summary.json").read_bytes())
        return content


def environment(name: str) -> Path:
    """Return the environment of an example, which is made if it is not there.

    Raises:
        CalledProcessError: a package cannot be installed.
    """
    wanted = (EXAMPLES / name / "requirements.txt").read_text(encoding="utf-8")
    folder, digest = BUILD / name, hashlib.sha256(wanted.encode()).hexdigest()
    made_of = folder / "made-of"
    if made_of.exists() and made_of.read_text() == digest:
        return folder
    base = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([base, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True)
    lines = [line for line in wanted.splitlines() if line and not line.startswith("#")]
    own = [line for line in lines if line.partition("=")[0] not in BORROWED]
    if own != lines:
        place = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages/borrowed.pth"
        (folder / place).write_text(sysconfig.get_path("purelib") + "\n")
    # By this environment's pip: to make one of its own takes longer than many an example's packages.
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    if own:
        more = shlex.split(os.environ.get("PIP_ARGS", ""))
        options = ["--quiet", "--disable-pip-version-check", *more]
        subprocess.run([*pip, "install", *options, *own], check=True)
    made_of.write_text(digest)
    return folder


def run(content: Mapping[str, Any], name: str, out: Path) -> Ran:
    """Run an experiment file with an example's programs.

    Args:
        content: of the file, whose paths are those of the example's folder.
        name: of the example.
        out: the folder of all runs.
    """
    made = dict(content)
    made["files"] = [str(EXAMPLES / name / file) for file in made.get("files", ())]
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"{name}.yaml"
    file.write_text(yaml.safe_dump(made, sort_keys=False), encoding="utf-8")
    folders = [str(environment(name) / "bin"), str(Path(sys.executable).parent)]
    path = os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])
    before = set(out.glob("*/*/*/manifest.json"))
    done = subprocess.run(
        [sys.executable, "-m", "testbed", "run", str(file), "--out", str(out), "--no-report"],
        env=os.environ | {"PATH": path},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    new = set(out.glob("*/*/*/manifest.json")) - before
    return Ran(done.returncode, done.stderr, new.pop().parent if new else None)


def example(name: str) -> dict[str, Any]:
    """Return the content of an example's file."""
    text = (EXAMPLES / name / f"{name}.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.load(text, _Loader)
    return content


class _Loader(yaml.SafeLoader):
    """A reader for which `on` is a text."""


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, found) for tag, found in own if tag != "tag:yaml.org,2002:bool"]
    for letter, own in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def struck(seed: int, workers: int = WORKERS, rounds: int = ROUNDS) -> dict[str, Any]:
    """Return Flower's example with the random faults of a seed."""
    generator = np.random.default_rng(seed)
    content = example("flower")
    content["name"] = "flower-chaos"
    content["seed"] = seed
    content["devices"] = {"workers": workers}
    content["limits"] = {"time": f"{LIMIT}s"}
    options = f"clients={workers} rounds={rounds}"
    content["programs"]["job"]["run"] = f"flwr run ./app testbed --stream --run-config '{options}'"
    content["faults"] = [_fault(generator, workers) for _ in range(int(generator.integers(1, 5)))]
    return content


def _fault(generator: np.random.Generator, workers: int) -> dict[str, Any]:
    lasting = f"{generator.uniform(0.5, 15):.1f}s"
    if generator.random() < 0.1:
        when = {"time": f"{generator.uniform(3, 40):.1f}s"}
        return {"who": "server", "when": when, "how": "kill", "lasting": lasting}
    kinds: list[Any] = ["freeze", "kill", "stop-network", "partition"]
    kinds.append({"kind": "slow", "uplink": "128kbit"})
    how = kinds[int(generator.integers(len(kinds)))]
    moment = f"{generator.uniform(1, 40):.1f}s"
    when = {"time": moment} if generator.random() < 0.6 else {"mean_time": moment}
    who: Any = {"number": int(generator.integers(1, workers))}
    return {"who": who, "when": when, "how": how, "lasting": lasting}


def wrong(ran: Ran) -> list[str]:
    """Return what a run may not do, whatever has struck it."""
    found = []
    if ran.status not in (0, 1):
        found.append(f"status {ran.status}")
    last = (ran.errors.strip().splitlines() or [""])[-1]
    if ran.status and not last.startswith("testbed: "):
        found.append(f"no sentence at its end: {last}")
    if "Traceback" in ran.errors:
        found.append("a traceback")
    if ran.directory is None or not ran.summary:
        return [*found, "no run directory, or no summary in it"]
    summary = ran.summary
    if summary["ended"] not in ("completed", "failed"):
        found.append(f"it ended {summary['ended']}")
    if summary["traffic"]["reconciled"] is not True:
        found += [str(one) for one in summary["traffic"]["differences"]] or ["not reconciled"]
    own = "/".join(ran.directory.parts[-3:])
    found += [f"process {process} is left" for process in _left(own)]
    found += [f"{group.path} is left" for group in control_group.left_over()]
    return found


def _left(run_id: str) -> list[int]:
    """Return the processes of a run that are still there."""
    mark, found = f"TESTBED_RUN={run_id}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def chaos(seeds: Sequence[int], out: Path) -> int:
    """Run Flower under the random faults of each seed; return the number of seeds that went wrong."""
    bad = 0
    for seed in seeds:
        ran = run(struck(seed), "flower", out)
        summary = ran.summary
        problems = wrong(ran)
        bad += bool(problems)
        says = summary.get("reason") or f"accuracy {summary.get('final_accuracy')} %"
        faults = ", ".join(f"{kind} {count}" for kind, count in summary.get("faults", {}).items())
        print(f"seed {seed}: {summary.get('ended')} ({says}); struck: {faults}", flush=True)
        for problem in problems:
            print(f"  WRONG: {problem}; see {ran.directory}", flush=True)
    print(f"{len(seeds)} seeds, {bad} wrong")
    return bad


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.programs", description=__doc__)
    parser.add_argument("--out", type=Path, default=None, help="the folder of the runs")
    what = parser.add_subparsers(dest="what", required=True)
    running = what.add_parser("run", help="run examples")
    running.add_argument("names", nargs="*", choices=[*NAMES, []], default=[])
    striking = what.add_parser("chaos", help="strike Flower with random faults")
    striking.add_argument("--seeds", type=seeds_of, default=[1])
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        out = chosen.out or Path(folder)
        if chosen.what == "chaos":
            return int(chaos(chosen.seeds, out) > 0)
        bad = 0
        for name in chosen.names or NAMES:
            ran = run(example(name), name, out)
            summary, problems = ran.summary, wrong(ran)
            bad += bool(problems or ran.status)
            wire = summary.get("ingress", {}).get("wire_bytes", 0)
            print(
                f"{name}: {summary.get('ended')}, accuracy {summary.get('final_accuracy')} %, "
                f"{wire:,} bytes into the server in {summary.get('training_seconds', 0):.0f} s"
            )
            for problem in [*problems, *([ran.errors] if ran.status else [])]:
                print(f"  WRONG: {problem}")
        return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
