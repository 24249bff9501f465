"""The thinned diagnostics of a record."""

from pathlib import Path

import numpy as np
import pytest

from reproduction.diagnosed import POINTS, Diagnosed, thinned


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
        assert mean == pytest.approx(sum(values[start:end]) / (end - start))


def test_unknown_values_are_left_out_of_a_mean() -> None:
    known = np.full(2 * POINTS, np.nan)
    known[1], known[2] = 3.0, np.inf
    found = thinned({"gap": known}).values["gap"]
    assert (found[0], found[1]) == (3.0, np.inf)
    assert np.isnan(found[2:]).all()


def test_they_are_read_as_they_were_written(tmp_path: Path) -> None:
    values = np.arange(250.0)
    values[:5] = np.nan
    written = thinned({"gap": values, "delay": values / 7})
    path = tmp_path / "diagnostics.csv"
    written.write(path)
    read = Diagnosed.read(path)
    np.testing.assert_array_equal(read.iteration, written.iteration)
    assert list(read.values) == ["gap", "delay"]
    for name, column in read.values.items():
        np.testing.assert_allclose(column, written.values[name], rtol=1e-5)
    Diagnosed().write(path)
    assert not path.exists() and not Diagnosed.read(path).values


@pytest.mark.parametrize("text", ["", "iteration\n1\n", "gap,delay\n1,2\n", "iteration,gap\n1\n"])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "diagnostics.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"first row|argument"):
        Diagnosed.read(path)
