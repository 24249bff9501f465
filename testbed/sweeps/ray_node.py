"""Functions that a Ray node runs for a sweep: carry out a run, and send its directory home."""

import os
import shutil
import tempfile
from pathlib import Path

from testbed.code_digest import package_digest
from testbed.ray_cluster.directory_transfer import packed, with_paths
from testbed.ray_cluster.travelling_data import Travelling, fetched
from testbed.runs.versions import host, versions
from testbed.runs.watching import Unwatched
from testbed.sweeps.one_run import Result, carry_out


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
    arrived = fetched(data, _folder(sweep))
    if arrived.datasets:
        os.environ["TESTBED_DATA"] = arrived.datasets
    places = {one.path: arrived.places[one.path] for one in data if one.dataset is None}
    folder = _folder(sweep) / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as own:
        directory = Path(own) / name
        result = carry_out(with_paths(spec_text, places), directory, Unwatched())
        return result, packed(directory) if directory.is_dir() else None


def described() -> dict[str, object]:
    """Return the processor of this node, the versions of its libraries, and the digest of its code."""
    return {"cpu": host()["cpu"], "versions": versions(), "code": package_digest()}


def clean(sweep: str) -> None:
    """Remove what a sweep has left on this node."""
    shutil.rmtree(_folder(sweep), ignore_errors=True)


def _folder(sweep: str) -> Path:
    return Path(tempfile.gettempdir()) / f"testbed-ray-{sweep}"
