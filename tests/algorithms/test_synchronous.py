"""The synchronous server against equations 3 and 4 of Xu et al., written naively."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.algorithms import ALGORITHMS
from testbed.algorithms.interface import Conditions
from testbed.algorithms.server_half import Protocol
from testbed.algorithms.synchronous_sgd import (
    SynchronousServer,
    SynchronousSgd,
    SynchronousSgdOptions,
)
from testbed.errors import SpecError
from testbed.experiment.load import dump, load
from testbed.updates import DenseUpdate, Layout, SparseUpdate, Update

SIZE = 6
ETA = 0.25
LAYOUT = Layout(("weight", "bias"), (SIZE - 1, 1))

values = st.lists(st.floats(-8, 8, width=32), min_size=SIZE, max_size=SIZE)
gradients = st.tuples(values, st.none() | st.sets(st.integers(0, SIZE - 1)))


def update(of: tuple[list[float], set[int] | None]) -> Update:
    numbers, indices = of
    vector = np.array(numbers, np.float32)
    if indices is None:
        return DenseUpdate(vector)
    at = np.array(sorted(indices), np.uint32)
    return SparseUpdate(at, vector[at])


def as_dense(one: Update) -> npt.NDArray[np.float64]:
    """Return g as a vector; the entries that a sparse update lacks are 0."""
    g = np.zeros(SIZE)
    if isinstance(one, SparseUpdate):
        g[one.indices] = one.values
    else:
        g[:] = one.values
    return g


def server(k: int, protocol: Protocol = "pull") -> SynchronousServer:
    return SynchronousServer(np.ones(SIZE, np.float32), ETA, k, protocol)


def dense(value: float) -> DenseUpdate:
    return DenseUpdate(np.full(SIZE, value, np.float32))


@settings(deadline=None)  # the host may be busy
@given(st.integers(1, 6), st.data())
def test_a_step_is_along_the_mean_of_the_first_k_gradients(
    workers: int, data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, workers))
    half = server(k)
    w = np.ones(SIZE)
    computing: dict[int, int] = {}
    gathered: list[npt.NDArray[np.float64]] = []
    t = 0
    for _ in range(data.draw(st.integers(0, 40))):
        i = data.draw(st.integers(0, workers - 1))
        if i not in computing:
            version = half.pull(i)
            if version is None:
                continue  # it waits for the next version
            assert version == t
            computing[i] = version
        g = update(data.draw(gradients))
        base = computing.pop(i)
        delay = half.push(i, g, base)
        if base < t:
            assert delay is None
        else:
            assert delay == 0
            gathered.append(as_dense(g))
        if len(gathered) == k:
            g_t = sum(gathered) / k  # equation 3
            w = w - ETA * g_t  # equation 4
            gathered.clear()
            t += 1
        assert half.version == t
        np.testing.assert_allclose(half.parameters, w, rtol=2e-5, atol=2e-5)


@settings(deadline=None)  # the host may be busy
@given(st.lists(gradients, min_size=1, max_size=8))
def test_waiting_for_all_workers_is_plain_synchronous_sgd(
    round_of: list[tuple[list[float], set[int] | None]],
) -> None:
    half = server(len(round_of))
    for worker in range(len(round_of)):
        assert half.pull(worker) == 0
    for worker, one in enumerate(round_of):
        assert half.version == 0
        assert (half.parameters == 1).all()
        assert half.push(worker, update(one), 0) == 0
    assert half.version == 1
    mean = np.mean([as_dense(update(one)) for one in round_of], axis=0)
    np.testing.assert_allclose(half.parameters, 1 - ETA * mean, rtol=1e-5, atol=1e-5)


def test_a_late_gradient_is_dropped_and_has_no_effect() -> None:
    half = server(1)
    for worker in (0, 1):
        half.pull(worker)
    assert half.push(0, dense(1), 0) == 0
    after = half.parameters.copy()
    assert half.push(1, dense(100), 0) is None
    assert half.version == 1
    assert (half.parameters == after).all()
    # Nor is it in the mean of the next version.
    half.pull(0)
    assert half.push(0, dense(2), 1) == 0
    assert (half.parameters == 1 - ETA * 1 - ETA * 2).all()


def test_a_worker_pulls_each_version_once_and_waits_for_the_next() -> None:
    half = server(2)
    assert half.pull(0) == 0
    assert half.pull(0) is None
    half.push(0, dense(1), 0)
    assert half.pull(0) is None
    assert half.pull(1) == 0
    half.push(1, dense(1), 0)
    assert half.pull(0) == 1
    assert half.pull(0) is None


def test_a_forgotten_worker_may_pull_the_same_version_again() -> None:
    half = server(2)
    assert half.pull(0) == 0
    half.forget(0)
    half.forget(7)
    assert half.pull(0) == 0


@pytest.mark.parametrize("base", [1, -1, 2**40])
def test_a_base_version_that_does_not_exist_is_refused(base: int) -> None:
    half = server(1)
    half.pull(0)
    with pytest.raises(ValueError, match=f"base version {base} is not between 0 and the version 0"):
        half.push(0, dense(1), base)
    assert half.version == 0
    assert (half.parameters == 1).all()


def test_the_gradient_s_memory_may_be_reused_after_the_push() -> None:
    half = server(2)
    gradient = np.full(SIZE, 1, np.float32)
    half.push(0, DenseUpdate(gradient), 0)
    gradient.fill(3)
    half.push(1, DenseUpdate(gradient), 0)
    assert (half.parameters == 1 - ETA * 2).all()
    assert (gradient == 3).all()


def test_a_rule_may_change_k_from_update_to_update() -> None:
    half = server(2)
    half.push(0, dense(1), 0)
    half.push(1, dense(3), 0)
    half.wait_for = 1
    half.push(0, dense(4), 1)
    assert half.version == 2
    assert (half.parameters == 1 - ETA * 2 - ETA * 4).all()


def made(workers: int, **options: Any) -> SynchronousServer:
    conditions = Conditions(ETA, workers, 10, 100)
    chosen = SynchronousSgdOptions.model_validate({"name": "sync-sgd"} | options)
    half = SynchronousSgd.server(chosen, LAYOUT, np.ones(SIZE, np.float32), conditions)
    assert isinstance(half, SynchronousServer)
    assert half.protocol == SynchronousSgd.protocol(chosen)
    SynchronousSgd.check(chosen, conditions)
    return half


def test_options_configure_the_server_half() -> None:
    assert ALGORITHMS["sync-sgd"] is SynchronousSgd
    assert made(7).wait_for == 7
    assert made(7).protocol == "pull"
    assert made(7, wait_for=3, protocol="push-and-wait").wait_for == 3
    assert made(7, wait_for=7, protocol="push-and-interrupt").protocol == "push-and-interrupt"
    with pytest.raises(SpecError, match="wait_for is 8, and there are only 7 workers"):
        made(7, wait_for=8)


SPEC = """\
name: synchronous
dataset: digits
model: mlp
training: {updates: 10}
devices: {workers: 4}
algorithms:
  - {name: sync-sgd, wait_for: 3}
  - name: sync-sgd
    wait_for: 5
  - {name: sync-sgd, wait_for: 0}
  - {name: sync-sgd, protocol: push}
"""


def test_each_mistake_in_a_file_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    with pytest.raises(SpecError) as caught:
        load(path)
    lines = str(caught.value).splitlines()
    assert [line.split(": ")[0] for line in lines] == [f"{path}:10", f"{path}:11"]
    assert "algorithms.2.wait_for" in lines[0]
    assert "algorithms.3.protocol" in lines[1]
    path.write_text("\n".join(SPEC.splitlines()[:-2]))
    with pytest.raises(SpecError) as caught:
        load(path)
    (line,) = str(caught.value).splitlines()
    # Options are checked against the rest of the file only when each is valid by itself.
    assert line.startswith(f"{path}:")
    assert int(line.removeprefix(f"{path}:").split(":")[0]) in range(6, 10)
    assert "wait_for is 5, and there are only 4 workers" in line
    with pytest.raises(SpecError, match="wait_for is 5"):
        load(path, ["algorithms.0.wait_for=5", "algorithms.1.wait_for=4"])
    fine = load(path, ["algorithms.1.wait_for=4"])
    assert load(_written(tmp_path, dump(fine))) == fine


def _written(folder: Path, text: str) -> Path:
    path = folder / "again.yaml"
    path.write_text(text)
    return path
