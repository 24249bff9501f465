"""Carries out experiments for comparisons: by the testbed's command line, or in this process."""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil

from testbed import execution
from testbed.experiment.spec import Spec
from testbed.planning.plans import AnyPlan, plans_of
from testbed.runs.watching import Unwatched


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """An experiment that was carried out.

    Attributes:
        status: exit status of the command; not 0 if a run is not complete.
        directory: the directory of the execution.
        summaries: one for each of its runs.
    """

    status: int
    directory: Path
    summaries: list[dict[str, Any]]


class Command(Protocol):
    """A command that was started, as ``psutil.Popen`` has it."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> Any: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    def children(self, recursive: bool = False) -> list[psutil.Process]: ...


def execute(
    command: str,
    spec: Path,
    out: Path,
    overrides: Sequence[str] = (),
    *,
    seconds: float | None = None,
    quiet: bool = False,
) -> CarriedOut:
    """Carry out ``testbed run`` or ``testbed simulate``.

    Args:
        overrides: as ``--set`` takes them.
        seconds: time after which the command gets SIGTERM; it then writes what it has.
        quiet: True to show nothing of its standard error.

    Raises:
        SystemExit: the command printed no summaries.
    """
    options = [part for override in overrides for part in ("--set", override)]
    whole = [command, str(spec), "--out", str(out), "--no-report", "--json", *options]
    process = subprocess.Popen(
        [sys.executable, "-m", "testbed", *whole],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if quiet else None,
        text=True,
    )
    try:
        printed, complaints = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        printed, complaints = process.communicate()
    if not printed:
        why = (complaints or "").strip()[-500:]
        raise SystemExit(f"testbed {command} {spec} ended with status {process.returncode} {why}")
    told = json.loads(printed)
    return CarriedOut(process.returncode, Path(told["directory"]), told["runs"])


def unwatched(_plan: AnyPlan, _number: int, _count: int) -> Unwatched:
    """Return the watcher of a run that nobody watches."""
    return Unwatched()


def execute_here(spec: Spec, out: Path) -> execution.ExecutionResult:
    """Carry out an experiment in this process, which has imported already what a command has to.

    Raises:
        TestbedError: as ``execution.check`` and ``execution.execute``.
    """
    execution.check(plans_of(spec), out)
    return execution.execute(spec, out, unwatched, report=False)


def concluded(count: int, failed: Sequence[int], what: str) -> int:
    """Print of how many of ``count`` seeds ``what`` is true, and which failed; return the status."""
    print(f"{count - len(failed)} of {count} {what}")
    if failed:
        print(f"failed: {','.join(map(str, failed))}", file=sys.stderr)
    return 1 if failed else 0
