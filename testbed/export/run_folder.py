"""Folders that are exported to. That of one run says what it holds, and nothing else is replaced.

The mark is written first without and last with the digest, so that an export that was cut off is
known, and is made anew.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from testbed.errors import TestbedError
from testbed.export.exported_run import ExportedRun

MARK = "testbed-export.json"


def digest_in(folder: Path) -> str | None:
    """Return the digest of the run that was exported into a folder; None if none was."""
    try:
        content = json.loads((folder / MARK).read_bytes())
        return str(content["digest"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def mark(folder: Path, run: ExportedRun, digest: str) -> None:
    """Write which run a folder holds, and its digest, empty while it is not complete."""
    (folder / MARK).write_text(json.dumps({"run": run.id, "digest": digest}) + "\n")


@contextmanager
def renewed(folder: Path, run: ExportedRun) -> Iterator[Path]:
    """Empty a folder for a run, and mark it as complete after the body.

    Raises:
        TestbedError: it holds something else, or cannot be written to.
    """
    try:
        if digest_in(folder) is not None:
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise TestbedError(
                f"{folder} holds files that no export has written: name another folder by --out"
            )
        mark(folder, run, "")
        yield folder
        mark(folder, run, run.digest)
    except OSError as error:
        raise TestbedError(f"{folder} cannot be written to: {error.strerror}") from error


def writable(folder: Path) -> Path:
    """Return a folder, made if it is not there.

    Raises:
        TestbedError: it cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder):
            return folder
    except OSError as error:
        raise TestbedError(
            f"{folder} cannot be written to ({error.strerror}): name another place by --out"
        ) from None
