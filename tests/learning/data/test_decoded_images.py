"""Decoded images that are kept between starts."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from testbed.learning.data import decoded_images, image_files, image_folders


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(decoded_images, "FEWEST", 1)
    generator = np.random.default_rng(1)
    for part, count in (("train", 6), ("test", 2)):
        for label in ("a", "b"):
            folder = tmp_path / "images" / part / label
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = generator.integers(0, 256, (4, 4, 3), np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    return tmp_path / "images"


def read(place: Path, train: object = None) -> tuple[list[object], list[object]]:
    found = decoded_images.images(image_folders.index(place), train)  # type: ignore[arg-type]
    return found[0].tolist(), found[1].tolist()


def test_a_second_start_decodes_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = np.array([7, 2, 3])
    of_chosen = read(place, chosen)
    everything = read(place)
    assert of_chosen == ([everything[0][i] for i in chosen], everything[1])
    monkeypatch.setattr(image_files, "decoded", None)
    assert read(place) == everything
    assert read(place, chosen) == of_chosen


def test_a_file_that_has_changed_is_decoded_again(place: Path) -> None:
    before = read(place)
    file = place / "test" / "b" / "0.png"
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(file)
    after = read(place)
    assert after[0] == before[0]
    assert sum(one != other for one, other in zip(after[1], before[1], strict=True)) == 1


def test_what_is_cut_off_or_cannot_be_kept_only_costs_the_time(place: Path, tmp_path: Path) -> None:
    before = read(place)
    (kept,) = (tmp_path / "cache" / "testbed" / "decoded").iterdir()
    os.truncate(kept, 200)
    assert read(place) == before
    for one in kept.parent.iterdir():
        one.unlink()
    kept.parent.rmdir()
    kept.parent.write_text("no folder")
    assert read(place) == before
