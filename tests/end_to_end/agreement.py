"""Carries out the runs that ``bench.agree`` compares, by commands that are forked from ``warm``.

A run's processes copy the page tables of the one that forks them, which cost a run of eight workers
0.3 s more in the process of the whole suite than in a command's.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.agree import RUNTIMES, Pair
from bench.command import CarriedOut
from tests.end_to_end.conftest import CommandLine

PATIENCE = 240.0
"""Seconds after which all runs of an experiment, on a busy host, count as hung."""


def carry_out(
    command: str, spec: Path, out: Path, changes: Sequence[str] = (), seconds: float = PATIENCE
) -> CarriedOut:
    """Do ``testbed run`` or ``testbed simulate`` without a report."""
    line = CommandLine(spec.parent)
    options = [part for change in changes for part in ("--set", change)]
    started = line.start(command, spec, "--out", out, "--no-report", "--json", *options)
    try:
        status = started.wait(seconds)
    finally:
        line.close()
    output = started.output.read_text()
    assert output, started.said
    told = json.loads(output)
    return CarriedOut(status, Path(told["directory"]), told["runs"])


def summaries(command: str, spec: Path, out: Path, *changes: str) -> list[dict[str, Any]]:
    """Do the same; return the summaries of its runs."""
    return carry_out(command, spec, out, changes).summaries


def differences_of_restored(pair: Pair) -> list[str]:
    """Return what differs in a run whose server was killed.

    It cannot report what it had received, and what it sends again is in no model.
    """
    known = ("the emulation's own ledgers", "wire bytes")
    return [text for text in pair.differences() if not text.startswith(known)]


def pairs(spec: Path, out: Path) -> list[Pair]:
    """Simulate every run of an experiment, and emulate it in namespaces by the virtual clock."""
    simulated = summaries("simulate", spec, out / "simulated")
    changes = ("clock=virtual", *RUNTIMES["namespaces"])
    emulated = summaries("run", spec, out / "namespaces", *changes)
    return [Pair("namespaces", *both) for both in zip(emulated, simulated, strict=True)]
