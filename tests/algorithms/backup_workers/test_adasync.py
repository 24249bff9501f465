"""AdaSync: its formulas, and which gradients each variant takes."""

import numpy as np
import pytest

from testbed.algorithms.backup_workers.adasync import (
    AdaSync,
    AdaSyncOptions,
    AdaSyncServer,
    Variant,
    gradients_to_wait_for,
)
from testbed.algorithms.interface import Conditions
from testbed.errors import SpecError
from testbed.updates import DenseUpdate

ONE = DenseUpdate(np.ones(2, np.float32))


def started(variant: Variant, k: int = 2) -> AdaSyncServer:
    options = AdaSyncOptions(variant=variant, first=k)
    server = AdaSyncServer(np.zeros(2, np.float32), 1.0, 3, options)
    for worker in range(3):
        server.joined(worker)
        assert server.pull(worker) == 0
    return server


@pytest.mark.parametrize("loss", [0.01, 0.3, 1.0, 2.0])
def test_k_sync_solves_the_quadratic_equation(loss: float) -> None:
    """K² + b·K − b·P = 0 for K₀ = 1, F(w₀) = 1 and P = 16, to the next whole number."""
    b = 1 / (15 * loss)
    (root,) = [one.real for one in np.roots([1, b, -b * 16]) if one.real > 0]
    assert gradients_to_wait_for("k-sync", 16, 1, 1.0, loss) == round(root)


def test_the_others_grow_with_the_root_of_the_loss() -> None:
    """K₀·√(F(w₀) / F(w_t)), at most P."""
    found = [gradients_to_wait_for("k-async", 16, 2, 1.0, loss) for loss in (4, 1, 0.25, 0.01, 0)]
    assert found == [1, 2, 4, 16, 16]


def test_k_of_different_workers() -> None:
    """k-sync drops what is late; k-async takes it, but of other workers."""
    sync, stale = started("k-sync"), started("k-async")
    for server in (sync, stale):
        assert [server.push(worker, ONE, 0, loss=1.0) for worker in (0, 1)] == [0, 0]
        assert server.version == 1
        assert server.pull(0) == 1
    assert sync.push(2, ONE, 0, loss=1.0) is None
    assert stale.push(2, ONE, 0, loss=1.0) == 1
    assert stale.pull(2) is None  # it waits for the next version
    assert stale.push(0, ONE, 1, loss=1.0) == 0
    assert (sync.version, stale.version) == (1, 2)


@pytest.mark.parametrize(("variant", "delay"), [("k-batch-sync", None), ("k-batch-async", 1)])
def test_k_of_any_workers(variant: Variant, delay: int | None) -> None:
    """A worker goes on at the same version, and its second gradient counts."""
    server = started(variant)
    assert server.push(0, ONE, 0, loss=1.0) == 0
    assert server.pull(0) == 0
    assert server.pull(0) is None  # not before it has pushed
    assert server.push(0, ONE, 0, loss=1.0) == 0
    assert server.version == 1
    assert server.push(1, ONE, 0, loss=1.0) == delay


def test_workers_that_are_gone_are_not_waited_for() -> None:
    """Two of K = 3 have pushed when the third leaves."""
    server = started("k-sync", 3)
    for worker in (0, 1):
        server.push(worker, ONE, 0, loss=1.0)
    server.forget(2)
    assert server.version == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"first": 4}, "only 3 workers"),
        ({"variant": "k-async", "protocol": "push-and-wait"}, "send stale gradients"),
        (
            {"variant": "k-batch-sync", "protocol": "push-and-interrupt"},
            "go on at the same version",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, object], text: str) -> None:
    """Before anything is started."""
    with pytest.raises(SpecError, match=text):
        AdaSync.check(AdaSyncOptions.model_validate(options), Conditions(0.1, 3, 1, 1))


@pytest.mark.parametrize("first", [1, 2, 5, 15])
@pytest.mark.parametrize("loss", [1e-9, 0.2, 1.0, 40.0, 1e9])
def test_k_sync_from_any_first_k(first: int, loss: float) -> None:
    """b = K₀²·F(w₀) / ((P − K₀)·F(w_t)): K₀ at F(w₀), P as the loss falls to 0, 1 as it grows."""
    b = first**2 / ((16 - first) * loss)
    root = max(np.roots([1, b, -b * 16]).real)
    found = gradients_to_wait_for("k-sync", 16, first, 1.0, loss)
    assert found == max(1, round(root))
    assert {1e-9: 16, 1.0: first, 1e9: 1}.get(loss, found) == found


@pytest.mark.parametrize("variant", ["k-sync", "k-batch-sync", "k-async", "k-batch-async"])
def test_the_ends_of_the_range(variant: Variant) -> None:
    """K₀ = P stays P in k-sync, whose b is then infinite; one worker has K = 1; F = 0 takes all."""
    for loss in (0.5, 1.0, 2.0):
        assert gradients_to_wait_for(variant, 1, 1, 1.0, loss) == 1
    assert gradients_to_wait_for("k-sync", 8, 8, 1.0, 50.0) == 8
    assert gradients_to_wait_for(variant, 8, 3, 1.0, 0.0) == 8
    # A mean loss that is no number says nothing: K₀ again.
    for loss in (float("nan"), float("inf")):
        assert gradients_to_wait_for(variant, 8, 3, 1.0, loss) == 3
