"""The scales: ``cpu`` runs in hours on two cores, ``paper`` on a GPU, ``tiny`` is for tests."""

from reproduction.series import Scale
from testbed.experiment.sections.learning import TransformerSpec
from testbed.experiment.spec import Spec

_DIGITS = 1442
"""Training images of the bundled digits."""
GPU = ("simulation.device=cuda",)
"""A GPU computes the gradients of all outstanding workers together."""
_TEXT = "/usr/share/common-licenses/GPL-3"
"""A short text that every Debian system has."""


def _warm_up(spec: Spec) -> list[str]:
    """Return the option that begins the warm-up at η / N (§C.4)."""
    schedule = spec.training.schedule
    if schedule is None or not schedule.warm_up:
        return []
    return [f"training.schedule.warm_up_from={1 / spec.devices.workers!r}"]


def _cpu(spec: Spec) -> list[str]:
    if spec.model.name != "resnet20":
        return _warm_up(spec)
    # The warm-up keeps the paper's five epochs: it has to be long beside the delay, and that is not
    # a tenth.
    return [
        *_warm_up(spec),
        "dataset.name=cifar10-jpeg",
        "training.updates=6250",
        "training.schedule.milestones=[8, 12]",
        "evaluation.every=625",
    ]


def _paper(spec: Spec) -> list[str]:
    return [*_warm_up(spec), *GPU]


def _tiny(spec: Spec) -> list[str]:
    workers = max(1, spec.devices.workers // 4)
    options = [
        f"devices.workers={workers}",
        "training.updates=40",
        "training.batch_size=8",
        "evaluation.every=20",
    ]
    if isinstance(spec.model, TransformerSpec):
        return [*options, f"dataset.path={_TEXT}", "model.layers=1", "model.width=16"]
    options += ["dataset.name=digits", "training.learning_rate=0.02"]
    options += [f"training.schedule.warm_up_from={1 / workers!r}"]
    options += ["training.schedule.warm_up=0.03", "training.schedule.milestones=[0.1, 0.2]"]
    if spec.model.name != "resnet20":
        return [*options, "model.name=mlp"]
    return [*options, "training.updates=10", "evaluation.every=5", "evaluation.images=50"]


CPU = Scale(
    "cpu",
    seeds=(1, 2, 3),
    options=_cpu,
    remark="**This is not the paper's scale**: other data, or fewer epochs, on two cores. Its numbers "
    "stand here to compare orderings and shapes with.",
    checkpoint_every=1000,
)
PAPER_SCALE = Scale(
    "paper",
    seeds=(1,),
    options=_paper,
    as_in_paper=True,
    checkpoint_every=6250,
    remark="The paper's means are of five runs. A GPU computes the gradients (`simulation: {device: "
    "cuda}`): on one core a run of ResNet-20 would take about six hours, 0.34 s a gradient.",
)
TINY = Scale("tiny", options=_tiny, remark="**This is a test**: its numbers say nothing.")
