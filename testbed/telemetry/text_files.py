"""Text files of a run directory that a kill at any moment must not leave half written."""

from collections.abc import Iterable
from pathlib import Path
from typing import IO


def replace_text(path: Path, text: str) -> None:
    """Replace a file's contents in one step."""
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def begin_with(path: Path, lines: Iterable[str]) -> IO[str]:
    """Replace a file by these lines in one step, and return it open for more."""
    partial = path.with_suffix(".partial")
    file = partial.open("w", newline="", encoding="utf-8")
    file.writelines(line + "\n" for line in lines)
    file.flush()
    partial.replace(path)
    return file


def append_to(path: Path) -> IO[str]:
    """Open a file of lines to append to, and end a last line that a kill cut off."""
    cut_off = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
    file = path.open("a", encoding="utf-8")
    if cut_off:
        file.write("\n")
    return file
