"""The numbers that algorithms report with each update: declared, and returned for each of them."""

import re
from typing import Any

import numpy as np
import pytest

from testbed.algorithms import ALGORITHMS, has
from testbed.algorithms.diagnostic import diagnosed
from testbed.algorithms.interface import Conditions
from testbed.algorithms.synchronous_sgd import SynchronousServer
from testbed.errors import RunError
from testbed.updates import DenseUpdate, Layout

SIZE = 4
LAYOUT = Layout(("weight",), (SIZE,))
ONES = DenseUpdate(np.ones(SIZE, np.float32))


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if has(name, "server")])
def test_a_half_returns_every_diagnostic_that_its_algorithm_declares(name: str) -> None:
    algorithm = ALGORITHMS[name]
    half = algorithm.server(
        algorithm.options_type.model_validate({"name": name}),
        LAYOUT,
        np.zeros(SIZE, np.float32),
        Conditions(0.1, 1, 10, 100),
    )
    half.joined(0)
    assert half.pull(0) == 0
    half.push(0, ONES, 0)
    assert half.version == 1
    assert list(half.diagnose()) == [one.name for one in algorithm.diagnostics]
    for one in algorithm.diagnostics:
        assert re.fullmatch("[a-z_]+", one.name)
        assert one.meaning.endswith(".")


@pytest.mark.parametrize("values", [{}, {"gip": 1.0}, {"gap": "x"}, {"gap": np.zeros(3)}, None])
def test_a_diagnostic_without_a_number_is_named(values: Any) -> None:
    with pytest.raises(RunError, match="declare gap, for which diagnose"):
        diagnosed(values, ["gap"])
    assert diagnosed({"gap": np.float64(3), "k": 2}, ["k", "gap"]) == [2.0, 3.0]


def test_synchronous_sgd_reports_k_and_the_late_gradients_of_each_update() -> None:
    half = SynchronousServer(np.zeros(SIZE, np.float32), 0.1, 2, "push-and-wait")
    for worker in range(4):
        half.joined(worker)
    for worker in (0, 1):
        half.push(worker, ONES, 0)
    assert half.diagnose() == {"k": 2, "late": 0}
    assert half.push(2, ONES, 0) is None
    half.finished(3, 0)
    assert half.diagnose() == {"k": 2, "late": 0}  # of the update that was made last
    for worker in (3, 0):
        half.push(worker, ONES, 1)
    assert half.diagnose() == {"k": 2, "late": 2}
    half.push(1, ONES, 2)
    for worker in (3, 2, 0):
        half.forget(worker)
    assert half.version == 3
    assert half.diagnose() == {"k": 1, "late": 0}
