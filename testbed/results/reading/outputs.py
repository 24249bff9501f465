"""The last lines that the programs of a run have written, also while they write."""

import os
import re
from pathlib import Path

from testbed.results.reading.recorded_run import RecordedRun
from testbed.untrusted_text import open_file, printable

LINES = 20
"""Lines of each program."""
PROGRAMS = 12
"""Programs in devices; others have their files, and ``testbed logs``."""
_TAIL = 16_384
"""Bytes that are read of a file."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def output_file(run: RecordedRun, device: str, program: str) -> Path:
    """Return the file of what a program in a device writes."""
    return run.directory / "nodes" / device / f"{program}.log"


def without_colours(line: str) -> str:
    """Return a line as text that a terminal and a page can show."""
    return printable(_COLOUR.sub("", line).expandtabs())


def last_lines(run: RecordedRun) -> dict[str, str]:
    """Return the last lines of the run's first programs, by device and program."""
    files = [
        (f"{device} {program}", output_file(run, device, program))
        for program, devices in run.manifest.programs.items()
        for device in devices
    ]
    return {name: _of_file(path) for name, path in files[:PROGRAMS]}


def _of_file(path: Path) -> str:
    try:
        file = open_file(path)
    except OSError:  # it has written nothing yet, or what is there is no file of a run
        return ""
    try:
        return tail(file)
    finally:
        os.close(file)


def tail(file: int) -> str:
    """Return the last lines of an open file, whose position stays: a program may be writing there."""
    size = os.fstat(file).st_size
    lines = os.pread(file, _TAIL, max(0, size - _TAIL)).decode("utf-8", "replace").split("\n")
    if size > _TAIL:
        lines = lines[1:]  # of which the beginning is not there
    return "\n".join(map(without_colours, lines[-LINES - 1 :])).rstrip("\n")
