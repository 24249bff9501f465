"""Files and texts that another user may have written: read with limits, printed without effects.

A run directory may be another user's, or damaged. Reading a file of it follows no symbolic link, waits
for no writer and takes in no more than a limit; text from it reaches a terminal without the characters
that a terminal acts on.
"""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

LARGEST_TEXT = 64 << 20
"""The most bytes of a file of JSON, YAML or CSV."""
LARGEST_TABLE = 4 << 30
"""The most bytes of a table."""
_LARGEST_INTEGER = 2**63 - 1


def open_file(
    path: Path, flags: int = os.O_RDONLY, mode: int = 0o644, *, follow: bool = False
) -> int:
    """Open a regular file; return its descriptor.

    Args:
        follow: follow symbolic links, as is right for a file that the user who runs this has named.

    Raises:
        FileNotFoundError: there is none.
        OSError: it is a symbolic link or no regular file, or it cannot be opened.
    """
    careful = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags | careful, mode)
    except OSError as error:
        if error.errno == errno.ELOOP and not follow:
            raise OSError(errno.ELOOP, "it is a symbolic link") from None
        if error.errno in (errno.EISDIR, errno.ENXIO):
            raise OSError(error.errno, "it is no regular file") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file")
    return descriptor


def read_file(path: Path, largest: int = LARGEST_TEXT, start: int = 0) -> bytes:
    """Return the content of a regular file, from byte ``start`` on.

    Raises:
        FileNotFoundError: there is none.
        OSError: it is no regular file, it has more than ``largest`` bytes, or it cannot be read.
    """
    with os.fdopen(open_file(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size - start
        if size > largest:
            raise OSError(errno.EFBIG, f"it is larger than {largest >> 20:,} MiB")
        file.seek(start)
        # Python allocates as much as is asked for.
        return file.read(max(0, size))


def parse_json(text: bytes | str) -> Any:
    """Return JSON data whose integers have 64 bits.

    Raises:
        ValueError: it is no JSON, or nested too deeply, or has larger integers.
    """
    try:
        return json.loads(text, parse_int=_integer)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _integer(digits: str) -> int:
    # Python's own limit on digits comes from a setting of the process.
    if len(digits) > 20 or abs(int(digits)) > _LARGEST_INTEGER:
        raise ValueError(f"{digits[:20]}... is no number of 64 bits")
    return int(digits)


def is_unicode(text: str) -> bool:
    """Return False of a file's name with bytes that are no UTF-8: no page or address can have it."""
    return not any("\ud800" <= one <= "\udfff" for one in text)


def printable(text: str) -> str:
    """Return text with its escapes in place of characters that a terminal acts on or cannot show.

    They are control characters, line breaks among them, those that change the direction of writing, and
    bytes of a file's name that are no UTF-8.
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )
