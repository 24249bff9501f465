"""A digest of the code that runs, computed from the files of the imported packages.

A checkout and the wheel and image made of it have the same digest; any change of the code changes it.
"""

import functools
import hashlib
from pathlib import Path

import fastgrad
import traffic

CODE_SUFFIXES = frozenset({".py", ".typed", ".j2", ".css", ".js"})
"""Suffixes of the files that are installed with a package; all other files only describe the code."""


@functools.cache  # 40 ms; what this process has loaded does not change with the files
def package_digest() -> str:
    """Return the SHA-256, hexadecimal, of the packages' code files: relative names and contents.

    Raises:
        OSError: a file cannot be read.
    """
    digest = hashlib.sha256()
    for folder in package_folders():
        for path in code_files(folder):
            name = f"{folder.name}/{path.relative_to(folder).as_posix()}".encode()
            content = path.read_bytes()
            # With lengths before them, no other names and contents give the same bytes.
            digest.update(len(name).to_bytes(8, "big") + name)
            digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()


def package_folders() -> list[Path]:
    """Return the folders of the packages whose code runs: the testbed, and those beside it."""
    beside = [Path(one.__file__).parent for one in (fastgrad, traffic) if one.__file__]
    return [Path(__file__).parent, *beside]


def code_files(folder: Path) -> list[Path]:
    """Return the files below a package's folder that are installed with it, in the order of names."""
    found = (path for path in folder.rglob("*") if path.suffix in CODE_SUFFIXES)
    return sorted(
        (path for path in found if path.is_file()), key=lambda path: path.relative_to(folder).parts
    )
