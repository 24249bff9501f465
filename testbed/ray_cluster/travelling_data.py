"""Files and folders that runs read, on their way to a cluster's nodes as objects of Ray's store."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.ray_cluster.directory_transfer import digest, packed, unpack


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


@dataclass(frozen=True, slots=True)
class FetchedData:
    """What has arrived on a node.

    Attributes:
        places: where files are there, by their paths on the driver's host.
        datasets: the folder of the dataset that is looked for by name; None if there is none.
    """

    places: dict[str, str]
    datasets: str | None


def departing(ray: Any, path: Path, dataset: str | None) -> Travelling:
    """Put a file or folder into Ray's store."""
    content = packed(path)
    return Travelling(digest(content), [ray.put(content)], str(path), dataset)


def fetched(data: Sequence[Travelling], folder: Path) -> FetchedData:
    """Unpack into a folder of this node what it lacks."""
    import ray

    places, datasets = {}, None
    for one in data:
        base = folder / "data" / one.digest
        target = base / (one.dataset or Path(one.path).name)
        if not target.exists():
            unpack(ray.get(one.content[0]), target)
        places[one.path] = str(target)
        if one.dataset:
            datasets = str(base)
    return FetchedData(places, datasets)
