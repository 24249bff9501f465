"""The output of a program of a user: kept with time stamps, and searched for what it says.

It is read even when it cannot be kept (the disk is full, or the limit is reached): a program must not
wait for room in a pipe because of that.
"""

import contextlib
import fcntl
import json
import math
import os
import re
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from testbed.untrusted_text import open_file

_AT_ONCE = 65_536
_LONGEST_LINE = 16_384
"""Bytes after which a line is cut: a program may write for ever without ending one."""
_KEPT = 5
"""Lines that are told of when the program has ended."""
_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")
"""A carriage return alone ends a line of a progress bar; the last one may still get its newline."""


class ProgramOutput:
    """The pipe from a program, and the file in which its lines are kept.

    Attributes:
        writing: descriptor of the program's end.
    """

    def __init__(self, file: Path, limit: int) -> None:
        """Make the pipe, and open the file to append to it.

        Args:
            limit: bytes after which nothing more is kept.
        """
        self._reading, self.writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reading, False)
        self._limit, self._begun = limit, b""
        self.last: deque[str] = deque(maxlen=_KEPT)
        self._complaints: list[str] = []
        self._file = -1
        try:
            self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._size = os.fstat(self._file).st_size
        except OSError as error:
            self._fail(error)

    def fileno(self) -> int:
        """Return the descriptor to read from, for selectors."""
        return self._reading

    def close_writing(self) -> None:
        """Close the program's end here, once the program has it."""
        os.close(self.writing)

    def read(self) -> Iterator[str] | None:
        """Return the lines that have come, which are kept when they are taken; None at the end."""
        try:
            data = os.read(self._reading, _AT_ONCE)
        except BlockingIOError:
            return iter(())
        return self._lines(data) if data else None

    def rest(self) -> Iterator[str]:
        """Yield what is left when the program has ended, though others may hold the pipe open.

        They may also go on writing: no more is read than the pipe holds.
        """
        left = fcntl.fcntl(self._reading, fcntl.F_GETPIPE_SZ)
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._reading, left):
                left -= len(data)
                yield from self._lines(data)
        if self._begun:
            data, self._begun = self._begun.rstrip(b"\r"), b""
            yield self._keep(data)

    def complaint(self) -> str | None:
        """Return why output is not kept, once; None if all is, or it was returned."""
        return self._complaints.pop() if self._complaints else None

    def _lines(self, data: bytes) -> Iterator[str]:
        *lines, self._begun = _LINE_END.split(self._begun + data)
        for line in lines:
            yield self._keep(line)
        while len(self._begun) > _LONGEST_LINE:
            places = range(_LONGEST_LINE - 3, _LONGEST_LINE + 1)  # of which one begins a character
            cut = max((i for i in places if self._begun[i] & 0xC0 != 0x80), default=_LONGEST_LINE)
            line, self._begun = self._begun[:cut], self._begun[cut:]
            yield self._keep(line)

    def _keep(self, line: bytes) -> str:
        text = line.decode("utf-8", "replace")
        if text.strip():
            self.last.append(text[:500])
        if self._file >= 0:
            now = datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
            kept = f"{now}Z {text}\n".encode()
            try:
                if self._size + len(kept) > self._limit:
                    os.write(self._file, f"{now}Z [the rest is not kept]\n".encode())
                    self._complaints.append(
                        f"has written {self._size:,} bytes of output, and the rest is not kept: "
                        "raise limits.output, or have it say less"
                    )
                    self._end_file()
                else:
                    self._size += os.write(self._file, kept)
            except OSError as error:
                self._fail(error)
        return text

    def _fail(self, error: OSError) -> None:
        self._complaints.append(f"has output that cannot be kept: {error.strerror}")
        self._end_file()

    def _end_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def close(self) -> None:
        """Close the pipe and the file."""
        os.close(self._reading)
        self._end_file()


class Followed:
    """A file of JSON lines that a program appends to, from the program's start on."""

    def __init__(self, path: Path) -> None:
        """Begin after what is in the file already: the program's earlier start has written it."""
        self._path, self._offset = path, 0
        with contextlib.suppress(OSError):  # it is not there yet
            self._offset = path.lstat().st_size

    def read(self, *, last: bool = False) -> Iterator[str]:
        """Yield whole lines since the last call; a file that was cut begins anew.

        Args:
            last: True if the program has ended: all that is left is read, and what has no newline
                at its end is a line, too.
        """
        with contextlib.suppress(OSError):  # it is not there yet, or no file
            file = open_file(self._path)
            try:
                size = os.fstat(file).st_size
                if size < self._offset:
                    self._offset = 0
                while self._offset < size:
                    data = os.pread(file, _AT_ONCE * 16, self._offset)
                    end = data.rfind(b"\n") + 1
                    if not end and (last or len(data) == _AT_ONCE * 16):
                        end = len(data)
                    self._offset += end
                    yield from data[:end].decode("utf-8", "replace").split("\n")
                    if not (end and last):
                        return
            finally:
                os.close(file)


def values_of_match(pattern: re.Pattern[str], line: str) -> dict[str, float]:
    """Return the numbers that the named groups of a pattern find in a line; empty without a match."""
    found = pattern.search(line)
    return {} if found is None else _numbers(found.groupdict())


def values_of_json(line: str) -> dict[str, float] | None:
    """Return the numbers of a JSON object; None if the line is none."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return _numbers(content) if isinstance(content, dict) else None


def _numbers(content: Mapping[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in content.items():
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            continue
        with contextlib.suppress(ValueError, OverflowError):
            number = float(value)
            if math.isfinite(number):
                found[name] = number
    return found
