"""The thinned diagnostics of a record."""

import numpy as np
import pytest

from reproduction.diagnosed import POINTS, thinned


@pytest.mark.parametrize("updates", [1, 7, POINTS, 3 * POINTS, 1234])
def test_a_point_is_the_mean_of_its_part_of_the_run(updates: int) -> None:
    values = np.random.default_rng(updates).normal(size=updates)
    found = thinned({"gap": values})
    ends = found.iteration.tolist()
    assert len(ends) == min(updates, POINTS) and ends[-1] == updates
    starts = [0, *ends[:-1]]
    sizes = [end - start for start, end in zip(starts, ends, strict=True)]
    assert max(sizes) - min(sizes) <= 1
    for start, end, mean in zip(starts, ends, found.values["gap"], strict=True):
        assert mean == pytest.approx(sum(values[start:end]) / (end - start), rel=1e-4)


def test_unknown_values_are_left_out_of_a_mean() -> None:
    known = np.full(2 * POINTS, np.nan)
    known[1], known[2] = 3.0, np.inf
    found = thinned({"gap": known}).values["gap"]
    assert (found[0], found[1]) == (3.0, np.inf)
    assert np.isnan(found[2:]).all()
