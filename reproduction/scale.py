"""The scales of a reproduction: ``full`` as in the paper, ``quick`` for a break, ``tiny`` for tests.

A scale changes the experiment files' values by the same ``--set`` options that a person would give.
The probability of a crash follows from the number of updates: half of the workers should have crashed
by the end, so that p · I = n / 2 (the file's 0.0004 at I = 250,000 and n = 200).
"""

from dataclasses import dataclass

from reproduction.paper import SEEDS, Series
from testbed.experiment.load import load
from testbed.experiment.spec import Spec


@dataclass(frozen=True, slots=True)
class Scale:
    """A scale of a reproduction.

    Attributes:
        name: its name on the command line.
        updates: updates of every run; None for the file's.
        evaluate_every: updates between evaluations; None for the file's.
        workers_divisor: divisor of the files' numbers of workers.
        dataset: a dataset instead of MNIST, of which subsets take the same shares; None for MNIST.
        seeds: the seeds, unless others are asked for.
        checkpoint_every: updates from one checkpoint to the next; None for no checkpoints.
    """

    name: str
    updates: int | None = None
    evaluate_every: int | None = None
    workers_divisor: int = 1
    dataset: str | None = None
    seeds: tuple[int, ...] = SEEDS
    checkpoint_every: int | None = None


FULL = Scale("full", checkpoint_every=25_000)
QUICK = Scale("quick", updates=20_000, evaluate_every=500, seeds=(1,))
# The bundled digits, so that it runs everywhere: 1,442 images for training, of which 288 and 144 are
# the shares that 12,000 and 6,000 are of MNIST.
TINY = Scale(
    "tiny", updates=100, evaluate_every=10, workers_divisor=20, dataset="digits", seeds=(1,)
)
SCALES = {scale.name: scale for scale in (FULL, QUICK, TINY)}
_DIGITS, _MNIST = 1442, 60_000


def load_run(series: Series, scale: Scale, seed: int) -> Spec:
    """Return the spec of one run: one algorithm of an experiment file, at a scale.

    Raises:
        SpecError: the experiment file cannot be used.
    """
    whole = load(series.path, overrides(load(series.path), scale), seed)
    return whole.runs()[series.label]


def overrides(spec: Spec, scale: Scale) -> list[str]:
    """Return the ``--set`` options that bring an experiment file to a scale."""
    found = []
    updates = scale.updates or spec.training.updates
    workers = spec.devices.workers // scale.workers_divisor
    if scale.updates:
        found.append(f"training.updates={updates}")
    if scale.evaluate_every:
        found.append(f"evaluation.every={scale.evaluate_every}")
    if scale.workers_divisor > 1:
        found.append(f"devices.workers={workers}")
    if scale.dataset:
        found.append(f"dataset.name={scale.dataset}")
        if images := spec.dataset.train_images:
            found.append(f"dataset.train_images={images * _DIGITS // _MNIST}")
    if getattr(spec, "faults", ()) and scale.updates:
        found.append(f"faults.0.when.probability={workers / 2 / updates:g}")
    return found
