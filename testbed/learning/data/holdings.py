"""The known datasets that are on this host."""

from dataclasses import dataclass

from testbed.errors import DataError
from testbed.learning.data import digits, sources
from testbed.learning.data.datasets import DIGITS


@dataclass(frozen=True, slots=True)
class Holding:
    """A known dataset, on this host or not.

    Attributes:
        name: the name in an experiment file.
        at: its directory; ``"bundled"`` for the digits of scikit-learn; None: not on this host.
        size: bytes on disk; None if missing, unreadable or bundled.
        train_images: the number of training images; None if they could not be read.
        test_images: likewise.
        verified: True if the contents are the published ones.
        problem: what is wrong if they are not, and the remedy.
    """

    name: str
    at: str | None
    size: int | None
    train_images: int | None
    test_images: int | None
    verified: bool
    problem: str | None


def holdings() -> list[Holding]:
    """Look for every known dataset; read and check the files found."""
    train, _, test, _ = digits.read()
    bundled = Holding(DIGITS, "bundled", None, len(train), len(test), True, None)
    return [bundled, *(_holding(name) for name in sources.SOURCES)]


def _holding(name: str) -> Holding:
    try:
        paths = sources.locate(name)
    except DataError as error:
        return Holding(name, None, None, None, None, False, str(error))
    at = str(paths[0].parent)
    try:
        size = sum(path.stat().st_size for path in paths)
        train, _, test, _ = sources.read(paths, sources.SOURCES[name].md5)
    except (DataError, OSError) as error:
        return Holding(name, at, None, None, None, False, str(error))
    return Holding(name, at, size, len(train), len(test), True, None)
