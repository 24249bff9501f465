"""Partitions that data determine: whose each image is, or which images each device has.

A file of owners has a line for each training image, a file of indices a line for each worker. Both may
have been written by any program, so what they say is checked, and an error names the line.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.errors import SpecError
from testbed.random_streams import stream
from testbed.untrusted_text import LARGEST_TEXT, open_file

Indices: TypeAlias = npt.NDArray[np.int64]


def read(path: Path, sha256: str | None) -> list[str]:
    """Return the lines of a file.

    Args:
        sha256: the digest that it had when the experiment was begun; None: any.

    Raises:
        SpecError: it cannot be read, or is another.
    """
    content = _content(path)
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise SpecError(
            f"partition: {path} has changed since the experiment was begun, and its devices would have "
            "other images: put the earlier file back"
        )
    try:
        # Other ends of lines, such as form feeds, may be part of a name.
        return content.decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        raise SpecError(f"partition: {path} is not UTF-8 text") from None


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal.

    Raises:
        SpecError: it cannot be read.
    """
    return hashlib.sha256(_content(path)).hexdigest()


def _content(path: Path) -> bytes:
    try:
        with os.fdopen(open_file(path, follow=True), "rb") as file:
            if os.fstat(file.fileno()).st_size > LARGEST_TEXT:
                raise SpecError(f"partition: {path} is larger than {LARGEST_TEXT >> 20} MiB")
            return file.read()
    except OSError as error:
        raise SpecError(f"partition: {path} cannot be read: {error.strerror or error}") from None


def indices(path: Path, sha256: str | None, images: int, devices: int) -> list[Indices]:
    """Return the parts that a file has: a line of indices, from 0, for each device.

    Raises:
        SpecError: the file cannot be used; the message names it and the line.
    """
    lines = read(path, sha256)
    if len(lines) != devices:
        raise SpecError(
            f"partition: {path} has {len(lines):,} lines, and {devices:,} workers get images: give it "
            "a line for each, or change devices.workers"
        )
    found = []
    line_of = np.zeros(images, np.int64)  # 0: of no line yet
    for number, line in enumerate(lines, 1):
        where = f"partition: {path}, line {number}"
        words = line.replace(",", " ").split()
        if not words:
            raise SpecError(f"{where}: is empty: each worker needs images")
        # Python makes no number of 5,000 digits.
        wrong = next((w for w in words if not (w.isascii() and w.isdigit() and len(w) < 20)), None)
        if wrong is not None:
            raise SpecError(
                f"{where}: '{wrong[:40]}' is no index: write whole numbers, with blanks between them"
            )
        numbers = list(map(int, words))
        beyond = next((one for one in numbers if one >= images), None)
        if beyond is not None:
            raise SpecError(
                f"{where}: there is no image {beyond}: the training images are numbered from 0 to "
                f"{images - 1}"
            )
        for one in numbers:
            if line_of[one]:
                raise SpecError(
                    f"{where}: image {one} is on line {line_of[one]} already: it can be of one worker "
                    "only, and once"
                )
            line_of[one] = number
        found.append(np.array(numbers, np.int64))
    return found


def owners_in(path: Path, sha256: str | None, images: int) -> list[str]:
    """Return the owner of each training image, of a file with a line for each.

    Raises:
        SpecError: the file cannot be used; the message names it and the line.
    """
    lines = [line.strip() for line in read(path, sha256)]
    if len(lines) != images:
        raise SpecError(
            f"partition: {path} has {len(lines):,} lines, and there are {images:,} training images: "
            "give it a line for each, with the name of its owner"
        )
    if "" in lines:
        raise SpecError(
            f"partition: {path}, line {lines.index('') + 1}: is empty: each image has an owner"
        )
    return lines


def natural(
    owners: Sequence[str], where: str, devices: int, per_worker: int | None, seed: int
) -> list[Indices]:
    """Return parts of which each is all images of some owners.

    With as many owners as devices, they are in the order of their names. Otherwise the seed deals them.

    Args:
        owners: the owner of each training image.
        where: what names them, for messages.
        per_worker: owners of each device, so that others' images are left out; None: all are dealt out,
            and their numbers differ by 1 at most.

    Raises:
        SpecError: there are too few owners.
    """
    names, of_image = np.unique(np.array(owners), return_inverse=True)
    ranks = np.arange(len(names))
    if all(name.isascii() and name.isdigit() for name in names.tolist()):
        # 9 before 10; by length, as Python makes no number of 5,000 digits.
        digits = [name.lstrip("0") for name in names.tolist()]
        ranks = np.array(sorted(ranks.tolist(), key=lambda one: (len(digits[one]), digits[one])))
    wanted = devices * (per_worker or 1)
    if len(names) < wanted:
        each = "one" if wanted == devices else str(per_worker)
        raise SpecError(
            f"partition: {where} has {len(names):,} owners of images, too few for {devices:,} workers: "
            f"each needs {each}; use fewer workers (devices.workers)"
        )
    if len(names) > devices:
        ranks = ranks[stream(seed, "partition natural").permutation(len(names))]
    dealt = np.array_split(ranks[: len(names) if per_worker is None else wanted], devices)
    device_of = np.full(len(names), -1)
    for device, own in enumerate(dealt):
        device_of[own] = device
    devices_of_images = device_of[of_image]
    return [np.flatnonzero(devices_of_images == device) for device in range(devices)]
