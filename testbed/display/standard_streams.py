"""Standard output and standard error, as every command and the library write to them.

Progress and messages are told (``tell``, ``terminal``): what cannot be written is dropped, whatever
the reason (a reader that has ended, a full disk, a terminal that hung up), because no run is to be lost
for it. What a command prints as its result goes to standard output as usual; that it cannot be written
is an ``OutputError``, after which output is dropped.
"""

import contextlib
import io
import os
import select
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO, cast

from testbed.errors import OutputError, TestbedError
from testbed.untrusted_text import printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from rich.console import Console

_NAMES = ("stdin", "stdout", "stderr")


class Unfailing(io.TextIOBase):
    """A stream that drops what another cannot take."""

    def __init__(self, stream: TextIO | None) -> None:
        """Write to ``stream``; None, as Python has it for a closed descriptor, takes nothing."""
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The stream's encoding."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def fileno(self) -> int:
        """Return the stream's descriptor; raise OSError if it has none."""
        if self._stream is None:
            raise io.UnsupportedOperation("fileno")
        return self._stream.fileno()

    def isatty(self) -> bool:
        """Return True if the stream is a terminal."""
        with contextlib.suppress(OSError, ValueError):
            return self._stream is not None and self._stream.isatty()
        return False

    def write(self, text: str) -> int:
        """Write what can be written; return the length of the text."""
        if self._stream is not None:
            with contextlib.suppress(OSError, ValueError, OutputError):
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream, if it can be flushed."""
        if self._stream is not None:
            with contextlib.suppress(OSError, ValueError, OutputError):
                self._stream.flush()


def tell(text: str, *, output: bool = False) -> None:
    """Print a line of progress or a message, to standard error, or to standard output if ``output``."""
    print(text, file=Unfailing(sys.stdout if output else sys.stderr), flush=True)


def terminal() -> "Console":
    """Return a console that shows progress on standard error."""
    from rich.console import Console

    return Console(file=cast("TextIO", Unfailing(sys.stderr)))


@contextlib.contextmanager
def results_of_runs(as_json: bool) -> Iterator[None]:
    """In the body, print the results of runs, which are in their directories anyway.

    That nobody reads them, or that a table cannot be printed, is no failure of the runs.

    Raises:
        OutputError: JSON cannot be printed, though it is to be read.
    """
    try:
        yield
    except OutputError as error:
        if error.closed:
            return
        if as_json:
            raise
        tell(f"{error}: `testbed show` prints the results of the runs")


@contextlib.contextmanager
def command(name: str) -> Iterator[None]:
    """Carry out a command in the body; an error ends the process, with its message and exit status.

    A standard descriptor that is closed becomes that of /dev/null, so that no file of a run is opened
    in its place and written to by libraries. Standard output raises ``OutputError``, not OSError.

    Args:
        name: begins the message.
    """
    _open_closed()
    before, sys.stdout = sys.stdout, _checked(sys.stdout)
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except TestbedError as error:
        if not (isinstance(error, OutputError) and error.closed):
            tell("\n".join(map(printable, f"{name}: {error}".split("\n"))))
        sys.exit(error.exit_status)
    finally:
        sys.stdout = before
        # Python itself would turn a failure to flush into the exit status 120.
        try:
            sys.stderr.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _open_closed() -> None:
    for number, name in enumerate(_NAMES):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest that is closed: this one
            mode = "r" if name == "stdin" else "w"
            stream = open(opened, mode, encoding="utf-8", closefd=opened != number)  # noqa: SIM115 - until the process ends
            setattr(sys, name, stream)


class _Checked(io.FileIO):
    """Standard output's descriptor."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._lost = False

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write some of the data; return the number of bytes, of all that is dropped as well.

        Raises:
            OutputError: it cannot be written; the first time only.
        """
        try:
            while not self._lost:
                written = super().write(data)
                if written is not None:
                    return written
                select.select((), (self,), ())  # a pipe that is full and does not block
        except OSError as error:
            self._lost = True
            raise OutputError(error) from error
        return memoryview(data).nbytes


def _checked(stream: TextIO) -> TextIO:
    """Return a stream that writes where another does; one without a descriptor stays as it is."""
    try:
        raw = _Checked(stream.fileno())
    except (OSError, ValueError):
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=stream.isatty() or getattr(stream, "write_through", False),
    )
