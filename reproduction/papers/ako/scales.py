"""The scales: ``cpu`` in about an hour on one core, ``wall`` on shaped links, ``tiny`` for tests.

Figures compare accuracies at one moment, and runs end after a number of updates: those that the
devices make in the seconds of the figure, by how long a gradient and its way over the links take.
"""

from reproduction.series import Scale
from testbed.experiment.model_conflicts import layout_of
from testbed.experiment.spec import Spec

LENGTH = 15.0
"""Of the virtual clock: that of Fig. 9 and of most runs."""
HOUR = LENGTH / 2
MIDDLE = 10.0
"""A moment of Fig. 9 at which Ako on 64 machines is still stable."""
MNIST_SECONDS = 60.0
"""The twenty minutes of Fig. 8."""
NETWORK_SECONDS = 120.0
"""Those of Fig. 8 with the paper's own network, which begins to learn later."""
ACCUMULATION_SECONDS = 100.0
"""Those of Fig. 13, which is about the accuracies that are reached at best."""
_LONGER = 1.03
"""Updates beyond the estimate, so that runs last as long as their figure."""
EVALUATIONS = 20
"""The evaluations of a run, and half of those of a run with the paper's own network."""
MOST = 64
"""Machines of the largest cluster."""
_TO_THE_HOUR = {(60, 4), (52, 12), (46, 18), (44, 20), (16, 2), (16, 4), (16, 8)}
"""Workers and servers that Fig. 9 does not have."""
USUAL = 0.1
"""Seconds of a gradient."""
WALL_SECONDS = 90.0
"""Of the host's clock: 18 s of the virtual one."""
_REMARK = (
    "**This is not the paper's scale**: Fashion-MNIST and AdaComp's CNN (847 kB) in place of 100 "
    "classes of ImageNet and its network, which fig13-network has, on CIFAR-10's JPEG variant; "
    "AdaComp's CNN on MNIST, too, on all pages but fig8-network; mini-batches of 10; links at which "
    "equation (3) gives the paper's p; and seconds of the virtual clock in place of hours."
)


def seconds(spec: Spec) -> float:
    """Return the seconds that the runs of a file last."""
    if spec.name.startswith("ako-mnist"):
        return MNIST_SECONDS
    if _has_own_network(spec):
        return NETWORK_SECONDS
    if spec.name.startswith("ako-accumulation"):
        return ACCUMULATION_SECONDS
    # The paper has "more than 4 h" and 3.3 h for them, which is beyond its figure.
    is_all_to_all = spec.name == "ako-all-to-all" and spec.devices.workers == MOST
    if is_all_to_all or spec.devices.allocation == "layers":
        return 4 * LENGTH
    if mean_time(spec) != USUAL or (spec.devices.workers, spec.devices.servers) in _TO_THE_HOUR:
        return HOUR
    return LENGTH


def _has_own_network(spec: Spec) -> bool:
    """Return True for the runs of Fig. 8 with the paper's own network."""
    return spec.name.startswith("ako-network")


def rate(spec: Spec) -> float:
    """Return about how many updates all devices make in a second, by a file's first algorithm."""
    algorithm, n, compute = spec.algorithms[0], spec.devices.workers, mean_time(spec)
    sent = 8 * model_bytes(spec) / as_rate(spec)
    if algorithm.name == "ako":
        return n / max(compute, sent * (n - 1) / (getattr(algorithm, "partitions", None) or MOST))
    if algorithm.name == "all-to-all":
        return n / max(compute, sent * (n - 1))
    if spec.devices.placement == "co-located":
        return min(n / (compute + 3 * sent), spec.devices.servers / sent / 1.5)
    most = _largest(spec) if spec.devices.allocation == "layers" else 1 / spec.devices.servers
    return min(n / (compute + 2 * sent), 1 / (sent * most))


def model_bytes(spec: Spec) -> int:
    """Return the bytes of a whole model's parameters, float32."""
    return 4 * layout_of(spec).total


def _largest(spec: Spec) -> float:
    """Return the largest layer's share of the model; one server holds it if layers are not cut."""
    layout = layout_of(spec)
    sizes = [sum(int(one.stop - one.start) for one in layer) for layer in layout.units("layers")]
    return max(sizes) / layout.total


def mean_time(spec: Spec) -> float:
    """Return the mean seconds of a gradient."""
    mean = getattr(spec.compute, "mean", None)
    assert mean, "all files have a mean"
    return float(mean)


def as_rate(spec: Spec) -> float:
    """Return the bit/s of a machine's uplink."""
    uplink = spec.network.uplink
    assert isinstance(uplink, int), "all files have a rate"
    return float(uplink)


def _lasting(spec: Spec, length: float) -> list[str]:
    """Return the options of runs of some seconds, and of τ."""
    count = EVALUATIONS * (2 if _has_own_network(spec) else 1)
    every = max(1, round(rate(spec) * length * _LONGER / count))
    found = [f"training.updates={every * count}", f"evaluation.every={every}"]
    tau = max(1, spec.devices.workers // 8)
    return found + [
        f"algorithms.{place}.staleness_bound={tau}"
        for place, one in enumerate(spec.algorithms)
        if one.name in ("ako", "all-to-all")
    ]


def _cpu(spec: Spec) -> list[str]:
    return _lasting(spec, seconds(spec))


def _wall(spec: Spec) -> list[str]:
    return _lasting(spec, WALL_SECONDS)


def _tiny(spec: Spec) -> list[str]:
    found = ["dataset.name=digits", "model.name=mlp", "evaluation.images=50"]
    if spec.devices.allocation == "layers":  # of which the network has three, and servers are four
        found.append("devices.allocation=tensors")
    return [*found, "training.updates=40", "evaluation.every=10"]


CPU = Scale("cpu", seeds=(1, 2, 3), options=_cpu, remark=_REMARK)
WALL = Scale(
    "wall",
    options=_wall,
    remark="**This is not the paper's scale**: it is Fig. 8 with links, and times of a gradient, "
    "that are five times slower than at scale cpu, on one host.",
)
TINY = Scale(
    "tiny", options=_tiny, remark="**A scale for tests**: the bundled digits, and a few updates."
)
