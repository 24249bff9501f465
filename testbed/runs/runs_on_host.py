"""The runs that are running on this host, found without a list of them.

A run's process holds the run's ``events.jsonl`` open from its beginning to its end, and the kernel
closes it whatever ends the process. So a run is running as long as /proc shows that file open in the
process that the run's manifest names. Runs of other users are seen by root only.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from testbed.nodes import linux
from testbed.nodes.run_names import AGENT, TITLES
from testbed.results.reading.journals import NoRunError
from testbed.results.reading.recorded_run import RecordedRun

_EVENTS = "events.jsonl"
_INSIDE = b"testbed.containers.role_in_container"


def running_runs() -> tuple[RecordedRun, ...]:
    """Return the runs that are running on this host and that this user may see, oldest first."""
    found: dict[Path, RecordedRun] = {}
    for process, directory in _candidates():
        with contextlib.suppress(NoRunError):  # another file of this name
            run = RecordedRun.load(directory)
            if run.manifest.pid == process and run.manifest.ended == "running":
                found[run.directory] = run
    return tuple(sorted(found.values(), key=lambda run: (run.manifest.started, run.id)))


def agent_of(run: RecordedRun) -> int | None:
    """Return the id of the process that owns a run's nodes; None if it has not begun, or has ended."""
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(run.manifest.pid).children():
            with contextlib.suppress(psutil.Error):  # it has just ended
                if child.cmdline()[:1] == [AGENT]:
                    return int(child.pid)
    return None


def named(runs: Sequence[RecordedRun], text: str) -> list[RecordedRun]:
    """Return the runs that a text names.

    Args:
        text: a run's id or directory, the beginning of either (experiment, experiment/time-seed), its
            algorithm's label, or the id of its process.
    """
    wanted = text.rstrip("/")
    path = str(Path(wanted).resolve())
    return [
        run
        for run in runs
        if wanted in (run.algorithm, str(run.manifest.pid))
        or f"{run.id}/".startswith(f"{wanted}/")
        or f"{run.directory}/".startswith(f"{path}/")
    ]


def _candidates() -> Iterator[tuple[int, Path]]:
    """Yield processes with the folders of which they hold the events open."""
    for process in linux.processes():
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            own = Path(f"/proc/{process}")
            command = (own / "cmdline").read_bytes()
            # Of a run's other processes, of which there may be thousands, none holds its records open.
            if not command or command.startswith(TITLES.encode()) or _INSIDE in command:
                continue
            for descriptor in os.listdir(own / "fd"):
                with contextlib.suppress(OSError):  # closed meanwhile
                    opened = (own / "fd" / descriptor).readlink()
                    if opened.name == _EVENTS:
                        yield process, opened.parent
