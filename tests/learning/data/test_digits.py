"""The bundled digits are those of scikit-learn, enlarged."""

import numpy as np
import torch
from sklearn.datasets import load_digits

from testbed.learning.data import digits
from tests.loaded_modules import loaded_by


def test_the_bundled_digits_are_all_of_scikit_learn_s() -> None:
    bunch = load_digits()
    small = torch.from_numpy(bunch.images)[:, None]
    large = torch.nn.functional.interpolate(small, size=28, mode="bilinear")[:, 0].numpy()
    theirs = np.rint(large * (255 / 16)).astype(np.uint8)
    train_images, train_labels, test_images, test_labels = digits.read()
    test = np.zeros(len(theirs), dtype=bool)
    for label in range(10):
        test[np.flatnonzero(bunch.target == label)[4::5]] = True
    train = ~test
    np.testing.assert_array_equal(train_images, theirs[train])
    np.testing.assert_array_equal(test_images, theirs[test])
    np.testing.assert_array_equal(train_labels, bunch.target[train])
    np.testing.assert_array_equal(test_labels, bunch.target[test])


def test_reading_digits_imports_no_scikit_learn() -> None:
    loaded = loaded_by("from testbed.learning.data import digits; digits.read()")
    assert not {name.partition(".")[0] for name in loaded} & {"sklearn", "scipy"}


def test_digits_are_enlarged_bilinearly() -> None:
    small = load_digits().images[0] * (255 / 16)
    centres = np.clip((np.arange(28) + 0.5) * 8 / 28 - 0.5, 0, 7)
    low = np.minimum(centres.astype(int), 6)
    weight = centres - low
    rows = small[low] * (1 - weight)[:, None] + small[low + 1] * weight[:, None]
    both = rows[:, low] * (1 - weight) + rows[:, low + 1] * weight
    assert np.abs(digits.read()[0][0] - both).max() <= 0.5 + 1e-9
