"""Fixtures: small made-up datasets of idx files, and the real datasets if they are available."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from testbed.learning.data.sources import FILES

Writer = Callable[[Path, int, int], None]


@pytest.fixture
def write_idx() -> Writer:
    """Return a function that writes the four files of a made-up dataset into a directory."""

    def write(directory: Path, train: int, test: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        generator = np.random.default_rng(7)
        for images, labels, count in ((*FILES[:2], train), (*FILES[2:], test)):
            n = count.to_bytes(4, "big")
            side = (28).to_bytes(4, "big")
            pixels = generator.integers(0, 256, count * 784, dtype=np.uint8).tobytes()
            (directory / images).write_bytes(b"\0\0\x08\3" + n + side + side + pixels)
            classes = bytes(i % 10 for i in range(count))
            (directory / labels).write_bytes(b"\0\0\x08\1" + n + classes)

    return write


@pytest.fixture
def real_data() -> Path:
    """Return TESTBED_DATA, the directory of the real datasets; skip the test without it."""
    given = os.environ.get("TESTBED_DATA")
    if not given or not (Path(given) / "mnist").is_dir():
        pytest.skip("TESTBED_DATA names no directory that holds mnist")
    return Path(given)
