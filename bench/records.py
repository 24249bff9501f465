"""``make records``: measure again what README and docs print, and keep it in ``docs/records``.

A record is a folder: what its commands printed (``output.txt``), with which code, on which host and
when (``record.json``), the pictures that they drew (``*.png``), and the runs that they made, as
``reproduction.record_files`` keeps them. The pages print figures between two comments,

    <!-- record NAME: lines -->     every line is a line that the record's commands printed
    <!-- record NAME: figures -->   every number is one of the record
    <!-- end of record -->

and ``tests/docs/test_records.py`` names each line or number that is not. Records whose figures depend
on the host's speed (``fast``) are made on a host that does nothing else.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from reproduction.records import keep
from testbed.results.reading.recorded_run import RecordedRun
from testbed.runs.versions import commit, host

REPOSITORY = Path(__file__).parents[1]
FOLDER = REPOSITORY / "docs" / "records"
OUT = "runs"
"""The folder of the runs, below the folder in which the commands run."""


@dataclass(frozen=True, slots=True)
class Source:
    """The commands that make a record.

    Attributes:
        commands: each a Python module and its arguments, run in the repository's environment.
        fast: True if its figures depend on the host's speed.
    """

    commands: tuple[tuple[str, ...], ...]
    fast: bool = False


def _run(name: str, *options: str) -> tuple[str, ...]:
    return ("testbed", "run", f"experiments/{name}.yaml", *options)


_SEEDS = ("1", "2", "3")
_LAST_STEP = ("--set", "training.updates=18000", "--set")
_ZSTD = "name: adacomp, ratio: 0.003, encoding: compact-8-zstd, pulls: changed"
_BOTH = (
    f"algorithms=[{{{_ZSTD}, label: zstd-no-feedback}}, "
    f"{{{_ZSTD}, error_feedback: true, error_decay: 0.5, label: zstd}}]"
)
SOURCES = {
    "quickstart": Source(
        (
            _run("quickstart"),
            ("testbed", "traffic", "quickstart/*/adacomp-0.01"),
            ("testbed", "compare", "quickstart/*", "--out", "accuracy.png"),
        ),
        fast=True,
    ),
    "hierarchical": Source(
        (
            ("testbed", "simulate", "experiments/hierarchical.yaml"),
            ("testbed", "compare", "hierarchical/*", "--out", "accuracy.png"),
        )
    ),
    "mnist-200": Source((_run("mnist-200"),)),
    "agree": Source((("bench.agree",),), fast=True),
    "encodings": Source((("bench.encodings",),)),
    "encoding-times": Source((("bench.encodings",),), fast=True),
    "ladder": Source(
        (
            *(_run("traffic-asgd", "--seed", seed) for seed in _SEEDS),
            _run("traffic-ladder"),
            *(_run("traffic-ladder", "--seed", seed, *_LAST_STEP, _BOTH) for seed in _SEEDS),
            ("testbed", "compare", "traffic-asgd/*", "traffic-ladder/*", "--accuracy", "97"),
            ("bench.ladder", "traffic-asgd/*", "traffic-ladder/*"),
        )
    ),
    "capture": Source((("bench.traffic",),), fast=True),
    "bench": Source((("bench",),), fast=True),
    "links": Source((("bench.links",),), fast=True),
}
"""The sources of all records, by the record's name."""


def make(name: str, code: str | None) -> Path:
    """Make a record in place of an earlier one; return its folder.

    Args:
        code: the commit of the checkout, read before any record was written into it.

    Raises:
        SystemExit: a command failed.
        TestbedError: a run cannot be read, or the record cannot be written.
    """
    source = SOURCES[name]
    with tempfile.TemporaryDirectory(prefix="testbed-records-") as folder:
        # Commands run in this folder: what they write must not land in the checkout.
        (Path(folder) / "experiments").symlink_to(REPOSITORY / "experiments")
        printed = [_carry_out(command, Path(folder)) for command in source.commands]
        whole = FOLDER / name
        shutil.rmtree(whole, ignore_errors=True)
        whole.mkdir(parents=True)
        made: dict[str, RecordedRun] = {}
        for path in sorted(Path(folder).glob(f"{OUT}/*/*/*/manifest.json")):
            run = RecordedRun.load(path.parent)
            made[f"{run.manifest.experiment}-{run.manifest.seed}-{path.parent.name}"] = run
        if made:
            keep(made, whole)
        for picture in Path(folder).glob("*.png"):
            shutil.copyfile(picture, whole / picture.name)
    (whole / "output.txt").write_text("\n".join(printed), encoding="utf-8")
    about = {
        "commands": [_shown(command) for command in source.commands],
        "depends_on_speed": source.fast,
        "commit": code,
        "host": {key: value for key, value in host().items() if key != "name"},
        "made": f"{datetime.now(UTC):%Y-%m-%d}",
    }
    (whole / "record.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return whole


def _carry_out(command: Sequence[str], folder: Path) -> str:
    """Run a command; return the command and, below it, what it printed."""
    words = [name for word in command for name in _expanded(word, folder)]
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), "COLUMNS": "160"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"records: {_shown(command)} ended with status {done.returncode}")
    return f"$ {_shown(command)}\n{done.stdout}"


def _expanded(word: str, folder: Path) -> list[str]:
    """Return the ids of the runs or executions that a pattern matches; other words unchanged."""
    if "*" not in word:
        return [word]
    return [str(path.relative_to(folder / OUT)) for path in sorted((folder / OUT).glob(word))]


def _shown(command: Sequence[str]) -> str:
    """Return a command as a person types it."""
    words = list(command) if command[0] == "testbed" else ["python", "-m", *command]
    return " ".join(f"'{word}'" if " " in word or "*" in word else word for word in words)


def main() -> None:
    """Make the records that are named, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m bench.records", description=__doc__)
    parser.add_argument("name", nargs="*", metavar="NAME", help=f"of {', '.join(SOURCES)}; all")
    names = parser.parse_args().name or list(SOURCES)
    if unknown := [name for name in names if name not in SOURCES]:
        parser.error(f"there is no record {unknown[0]}; there are {', '.join(SOURCES)}")
    code = commit()
    for name in names:
        print(make(name, code), flush=True)


if __name__ == "__main__":
    main()
