"""Experiment files that can be started from a page, and the commands that carry them out."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from testbed.errors import SpecError
from testbed.results.reading.outputs import tail
from testbed.untrusted_text import LARGEST_TEXT, is_unicode, printable, read_file

DEEPEST = 2
"""Folders below the one of experiments in which files are looked for."""
_EXPERIMENT = re.compile(rb"^(algorithms|programs)[ \t]*:", re.MULTILINE)
_SWEEP = re.compile(rb"^sweep[ \t]*:(?![ \t]*null)", re.MULTILINE)
_PLAN_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Started:
    """A command that carries out an experiment.

    Attributes:
        file: the experiment's.
        process: the command's id.
        status: its exit status; None while it runs.
        output: the last lines that it has written.
    """

    file: str
    process: int
    status: int | None
    output: str


class Experiments:
    """The experiment files of a folder, and those that were started."""

    def __init__(self, folder: Path, runs: Path) -> None:
        """Offer the experiment files of a folder.

        Args:
            runs: the folder into which they write, which holds none to start.
        """
        self._folder, self._runs = folder.resolve(), runs.resolve()
        # When a file was written that was read, and what it is.
        self._read: dict[Path, tuple[int, bool]] = {}
        self._commands: list[tuple[str, subprocess.Popen[bytes], IO[bytes]]] = []
        self._plans: list[subprocess.Popen[bytes]] = []

    def files(self) -> list[str]:
        """Return the paths of the experiment files, below the folder; sweeps are not among them."""
        return sorted(path.relative_to(self._folder).as_posix() for path in self._found())

    def _found(self) -> Iterator[Path]:
        folders = [(self._folder, 0)]
        while folders:
            folder, depth = folders.pop()
            try:
                entries = list(folder.iterdir())
            except OSError:  # another user's
                continue
            for path in entries:
                if path.is_symlink() or path.name.startswith(".") or not is_unicode(path.name):
                    continue
                if path.is_dir() and depth < DEEPEST and path != self._runs:
                    folders.append((path, depth + 1))
                elif path.suffix in (".yaml", ".yml") and self._is_experiment(path):
                    yield path

    def _is_experiment(self, path: Path) -> bool:
        """Return True if a file has what makes it an experiment, and is no sweep of several."""
        try:
            written = path.stat().st_mtime_ns
            if self._read.get(path, (0, False))[0] != written:
                text = read_file(path, LARGEST_TEXT)
                found = bool(_EXPERIMENT.search(text)) and not _SWEEP.search(text)
                self._read[path] = written, found
        except OSError:
            return False
        return self._read[path][1]

    def plan(self, file: str, overrides: str) -> tuple[int, str]:
        """Return exit status and text of ``testbed plan``.

        Args:
            file: one of ``files``.
            overrides: KEY=VALUE, one in each line.

        Raises:
            SpecError: there is no such file.
        """
        with subprocess.Popen(
            self._command("plan", file, overrides),
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            self._plans.append(process)
            try:
                output, _ = process.communicate(timeout=_PLAN_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                return 1, f"`testbed plan {file}` has not ended within {_PLAN_SECONDS:g} s"
            finally:
                self._plans.remove(process)
        return process.returncode, _as_text(output)

    def end_plans(self) -> None:
        """End the plans that are being made: nobody sees them any more."""
        for process in self._plans:
            process.kill()

    def start(self, file: str, overrides: str) -> None:
        """Start an experiment, which goes on if this process ends.

        Args:
            file, overrides: as of ``plan``.

        Raises:
            SpecError: there is no such file.
        """
        command = self._command("run", file, overrides, "--out", str(self._runs))
        output = tempfile.TemporaryFile()  # noqa: SIM115 - the command writes into it
        process = subprocess.Popen(
            command,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._commands.append((file, process, output))

    def started(self) -> list[Started]:
        """Return the commands that were started, the last one first."""
        found = []
        for file, process, output in reversed(self._commands):
            text = tail(output.fileno())
            found.append(Started(file, process.pid, process.poll(), text))
        return found

    def _command(self, name: str, file: str, overrides: str, *more: str) -> list[str]:
        if file not in self.files():
            raise SpecError(f"there is no experiment file {file!r} in the folder of experiments")
        if "\0" in overrides:
            raise SpecError("the keys to set have a NUL, which no command can be given")
        settings: Sequence[str] = [line.strip() for line in overrides.splitlines() if line.strip()]
        options = [option for one in settings for option in ("--set", one)]
        return [sys.executable, "-m", "testbed", name, *options, *more, "--", file]


def _as_text(output: bytes) -> str:
    """Return a command's output as a page can show it."""
    return "\n".join(map(printable, output.decode("utf-8", "replace").splitlines()))
