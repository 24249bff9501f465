"""The scales: ``cpu`` in hours on two cores, ``paper`` as in the paper, on a GPU, ``tiny`` for tests.

The learning rate of a static k is k / 16 of that of k = 16, and such a run is given 16 / k times the
updates: all take about the same number of gradients.
"""

from reproduction.papers.dbw.knee import known, rate
from reproduction.series import Scale
from testbed.experiment.spec import Spec

_REMARK = (
    "**This is not the paper's scale**: at most five seeds in place of twenty, runs that end soon "
    "after the loss is reached, and a network whose widths the paper does not give. CIFAR-10 is its "
    "JPEG variant here, with a small network: no result on CIFAR-10."
)
_TINY = "**A scale for tests**: the bundled digits, and a few updates."
_SHORTER = {16: 400, 128: 300}
"""Updates with mini-batches of so many images, where the file has those of 500."""


def _wait_for(spec: Spec) -> int | None:
    """Return k of a file's only algorithm, if that is a static one."""
    (first, *others) = spec.algorithms
    return None if others else getattr(first, "wait_for", None)


def _updates(spec: Spec, updates: int) -> list[str]:
    """Return the options for some updates at k = n, and as many gradients at another static k."""
    k, n = _wait_for(spec), spec.devices.workers
    if k is None or getattr(spec.algorithms[0], "rate_rule", "") != "proportional":
        return [f"training.updates={updates}"]
    every = max(1, spec.evaluation.every * n // k)
    return [f"training.updates={round(updates * n / k)}", f"evaluation.every={every}"]


def _by_knee(spec: Spec) -> list[str]:
    """Return the learning rate that the knee rule gives, where the file is to be run by it.

    DBW and B-DBW have that of k = n (§4.1), or the file's until it is found.
    """
    if "batches" not in spec.name:
        return []
    batch, k = spec.training.batch_size, _wait_for(spec)
    if k is None and not known(batch, spec.devices.workers):
        return []
    return [f"training.learning_rate={rate(batch, k or spec.devices.workers)}"]


def _cpu(spec: Spec) -> list[str]:
    updates = spec.training.updates
    if "batches" in spec.name:
        updates = _SHORTER.get(spec.training.batch_size, updates)
    if "cifar" in spec.name:
        # The authors' network and data are the paper scale's.
        small = ["dataset.name=cifar10-jpeg", "model.name=cnn-small"]
        return [*small, *_updates(spec, 400)]
    return [*_updates(spec, updates), *_by_knee(spec)]


def _paper(spec: Spec) -> list[str]:
    if "cifar" in spec.name:
        on_gpu = ["model.name=resnet18", "simulation.device=cuda"]
        return [*on_gpu, *_updates(spec, spec.training.updates)]
    longer = 1 if spec.name == "dbw-knee" else 5
    return [*_updates(spec, longer * spec.training.updates), *_by_knee(spec)]


def _tiny(spec: Spec) -> list[str]:
    found = ["dataset.name=digits", "model.name=mlp", "training.batch_size=20"]
    found += ["evaluation.images=50", "simulation.exact.images=100"]
    updates = 400 if spec.name == "dbw-ingress" else 25
    if spec.name == "dbw-slowdown":
        found += ["compute.changes.0.at=12s"]
    return [*found, *_updates(spec, updates)]


CPU = Scale("cpu", seeds=(1, 2, 3, 4, 5), options=_cpu, remark=_REMARK)
PAPER_SCALE = Scale("paper", seeds=tuple(range(1, 21)), options=_paper, as_in_paper=True)
TINY = Scale("tiny", options=_tiny, remark=_TINY)
