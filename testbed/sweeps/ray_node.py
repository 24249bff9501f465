"""Functions that a Ray node runs for a sweep: carry out a run, and send its directory home."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.code_digest import package_digest
from testbed.runs.versions import host, versions
from testbed.runs.watching import Unwatched
from testbed.sweeps.directory_transfer import packed, unpack, with_paths
from testbed.sweeps.one_run import Result, carry_out


@dataclass(frozen=True, slots=True)
class Travelling:
    """A file or folder that runs read, on its way to a node.

    Attributes:
        digest: that of its bytes.
        content: a list of the object of Ray's that is the bytes; in a list, a node fetches it once.
        path: its path on the driver's host.
        dataset: its name if it is a dataset of the catalogue, which is looked for by name; else None.
    """

    digest: str
    content: list[Any]
    path: str
    dataset: str | None


def run_there(
    spec_text: str, name: str, data: list[Travelling], sweep: str
) -> tuple[Result, bytes | None]:
    """Carry out a run in a folder of this node.

    Args:
        name: that of its run directory.
        data: what the run reads.
        sweep: names the folder of this node for all that the sweep needs.

    Returns:
        How it ended, and the run directory as an archive; None if there is none.
    """
    places = _fetched(data, _folder(sweep))
    folder = _folder(sweep) / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as own:
        directory = Path(own) / name
        result = carry_out(with_paths(spec_text, places), directory, Unwatched())
        return result, packed(directory) if directory.is_dir() else None


def described() -> dict[str, Any]:
    """Return the processor of this node, the versions of its libraries, and the digest of its code."""
    return {"cpu": host()["cpu"], "versions": versions(), "code": package_digest()}


def clean(sweep: str) -> None:
    """Remove what a sweep has left on this node."""
    shutil.rmtree(_folder(sweep), ignore_errors=True)


def _folder(sweep: str) -> Path:
    return Path(tempfile.gettempdir()) / f"testbed-ray-{sweep}"


def _fetched(data: list[Travelling], folder: Path) -> Mapping[str, str]:
    """Unpack what this node lacks; return where files are that were elsewhere on the driver's host."""
    import ray

    places = {}
    for one in data:
        base = folder / "data" / one.digest
        target = base / (one.dataset or Path(one.path).name)
        if not target.exists():
            unpack(ray.get(one.content[0]), target)
        if one.dataset:
            os.environ["TESTBED_DATA"] = str(base)
        else:
            places[one.path] = str(target)
    return places
