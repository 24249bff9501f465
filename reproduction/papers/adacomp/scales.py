"""The scales: ``full`` as in the paper, ``quick`` for a break, ``tiny`` for tests.

The probability of a crash follows from the number of updates: half of the workers should have crashed
by the end, so that p · I = n / 2 (the files' 0.0004 at I = 250,000 and n = 200).
"""

from reproduction.series import Scale
from testbed.experiment.spec import Spec

_SMALLER = (
    "**This is not the paper's scale**: its numbers are of 250,000 updates, and stand here only to "
    "compare with."
)
# The bundled digits, so that it runs everywhere: 1,442 images for training, of which 288 and 144 are
# the shares that 12,000 and 6,000 are of MNIST.
_DIGITS, _MNIST = 1442, 60_000


def _shorter(spec: Spec, updates: int, evaluate_every: int, workers: int) -> list[str]:
    found = [f"training.updates={updates}", f"evaluation.every={evaluate_every}"]
    if spec.faults:
        found.append(f"faults.0.when.probability={workers / 2 / updates:g}")
    return found


def _quick(spec: Spec) -> list[str]:
    return _shorter(spec, 20_000, 500, spec.devices.workers)


def _tiny(spec: Spec) -> list[str]:
    workers = spec.devices.workers // 20
    found = [*_shorter(spec, 40, 4, workers), f"devices.workers={workers}", "dataset.name=digits"]
    if images := spec.dataset.train_images:
        found.append(f"dataset.train_images={images * _DIGITS // _MNIST}")
    return found


# §V-C: every experiment was run 3 times.
FULL = Scale("full", seeds=(1, 2, 3), as_in_paper=True, checkpoint_every=25_000)
QUICK = Scale("quick", seeds=(1, 2, 3), options=_quick, remark=_SMALLER)
TINY = Scale("tiny", options=_tiny, remark=_SMALLER)
