"""CIFAR-10 and CIFAR-100 in their official binary format, which their authors publish.

Files of records. A record is the labels, a byte each, and 3,072 bytes, the red, the green and the blue
values of 32 × 32 pixels, row by row. CIFAR-10 has one label, CIFAR-100 the superclass, which is not
used, and the class. The files themselves have no published checksums, but the archive that they come
in has one, which is checked when it is fetched; here their lengths, labels and numbers of images per
class are.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from testbed.errors import DataError
from testbed.learning.inputs import Inputs

MIRRORS = ("https://www.cs.toronto.edu/~kriz/",)

PUBLISHED = 50_000, 10_000
"""The numbers of training and of test images, of both datasets."""
_SHAPE = (3, 32, 32)
_VALUES = 3 * 32 * 32


@dataclass(frozen=True, slots=True)
class Cifar:
    """One of the two datasets.

    Attributes:
        title: its name in messages.
        archive, md5: the published archive, and its checksum.
        folder: the folder of the files in the archive.
        labels: labels of a record; the last one is the class.
    """

    title: str
    archive: str
    md5: str
    folder: str
    training: tuple[str, ...]
    test: str
    labels: int
    classes: int

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.training, self.test)

    @property
    def inputs(self) -> Inputs:
        return Inputs(_SHAPE, self.classes)

    def files_in(self, directory: Path) -> list[Path] | None:
        """Return the files in a directory, or in the archive's folder there; None if one is missing."""
        for place in (directory, directory / self.folder):
            found = [place / file for file in self.files]
            # Not Path.is_file, which raises where this user may not look.
            if all(os.path.isfile(path) for path in found):  # noqa: PTH113
                return found
        return None

    def read(self, paths: Sequence[Path]) -> tuple[npt.NDArray[np.uint8], ...]:
        """Read the files.

        Args:
            paths: in the order of ``files``.

        Returns:
            Training images (N, 3, 32, 32), their labels (N,), test images, their labels; all uint8.

        Raises:
            DataError: a file is damaged, or the classes have different numbers of images.
        """
        read_files = [self._read(path) for path in paths]
        images = np.concatenate([one[0] for one in read_files[:-1]])
        labels = np.concatenate([one[1] for one in read_files[:-1]])
        for of, path in ((labels, paths[0].parent), (read_files[-1][1], paths[-1])):
            counts = np.bincount(of, minlength=self.classes)
            if counts.min() != counts.max():
                raise DataError(
                    f"{path} is not {self.title}, which has as many images of each class: of class "
                    f"{counts.argmin()} there are {counts.min()}, of class {counts.argmax()} "
                    f"{counts.max()}; fetch it again"
                )
        return images, labels, *read_files[-1]

    def _read(self, path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
        record = self.labels + _VALUES
        try:
            content = np.fromfile(path, np.uint8)
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
        if not len(content) or len(content) % record:
            raise DataError(
                f"{path} has {len(content):,} bytes, and records of {self.title} have {record:,} each: "
                "it is truncated or something else; fetch it again"
            )
        records = content.reshape(-1, record)
        labels = records[:, self.labels - 1]
        if labels.max() >= self.classes:
            at = int(labels.argmax())
            raise DataError(
                f"{path} holds the label {labels[at]} at byte {at * record + self.labels - 1}, and "
                f"{self.title} has 0 to {self.classes - 1}; fetch it again"
            )
        return records[:, self.labels :].reshape(-1, *_SHAPE), labels.copy()


CIFARS = {
    "cifar10": Cifar(
        "CIFAR-10",
        "cifar-10-binary.tar.gz",
        "c32a1d4ab5d03f1284b67883e8d87530",
        "cifar-10-batches-bin",
        tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
        "test_batch.bin",
        labels=1,
        classes=10,
    ),
    "cifar100": Cifar(
        "CIFAR-100",
        "cifar-100-binary.tar.gz",
        "03b5dce01913d631647c71ecec9e9cb8",
        "cifar-100-binary",
        ("train.bin",),
        "test.bin",
        labels=2,
        classes=100,
    ),
}
"""Both, by the name in an experiment file."""
