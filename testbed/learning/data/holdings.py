"""The known datasets that are on this host."""

from dataclasses import dataclass

from testbed.errors import DataError
from testbed.learning.data import catalogue, digits
from testbed.learning.data.catalogue import CIFAR10_JPEG, DIGITS
from testbed.learning.data.cifar import CIFARS, PUBLISHED

NOT_PUBLISHED = "CIFAR-10 re-encoded as JPEG: not the published images, and no result on CIFAR-10"


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
    return [bundled, *(_holding(name) for name in catalogue.names() if name != DIGITS)]


def _holding(name: str) -> Holding:
    try:
        place = catalogue.place_of(name)
    except DataError as error:
        return Holding(name, None, None, None, None, False, str(error))
    assert place is not None
    at = str(place)
    try:
        size = sum(path.stat().st_size for path in catalogue.files_of(name))
        # Of image files only the labels are read: decoding all would take seconds.
        train, test = catalogue.counts(name)
    except (DataError, OSError) as error:
        return Holding(name, at, None, None, None, False, str(error))
    problem = NOT_PUBLISHED if name == CIFAR10_JPEG else None
    if name in CIFARS and (train, test) != PUBLISHED:
        problem = "not the {:,} training and {:,} test images that are published".format(*PUBLISHED)
    return Holding(name, at, size, train, test, problem is None, problem)
