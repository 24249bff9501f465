"""Run directories and data as bytes, by which they travel between the hosts of a cluster."""

import hashlib
import io
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from testbed.orchestrator.hosts.hosts_file import with_places


def packed(path: Path) -> bytes:
    """Return a file or a folder as a tar archive, under its name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as archive:
        archive.add(path, arcname=path.name)
    return buffer.getvalue()


def digest(content: bytes) -> str:
    """Return a name for some bytes, the same for the same bytes."""
    return hashlib.sha256(content).hexdigest()[:32]


def unpack(content: bytes, target: Path) -> None:
    """Make a file or a folder of an archive, in place of one that exists; a part is never seen.

    Raises:
        OSError: it cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".arriving-", dir=target.parent) as folder:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(folder, filter="data")
        (arrived,) = Path(folder).iterdir()
        if target.is_dir():
            shutil.rmtree(target)
        arrived.replace(target)


def with_paths(spec_text: str, places: Mapping[str, str]) -> str:
    """Return the text of a spec whose paths are other ones, as ``places`` says."""
    if not places:
        return spec_text
    there = with_places(yaml.safe_load(spec_text), places)
    return yaml.safe_dump(there, sort_keys=False, allow_unicode=True)
