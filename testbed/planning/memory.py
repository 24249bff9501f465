"""How much memory a run takes: the one place for the figures, and for how they were measured.

An emulation: ``python -m bench.scale`` tells what is a worker's own and what its device takes of the
host in all, with the kernel's namespaces, page tables and socket buffers (docs/scale.md has the table).
A simulation: the peak of its resident memory by the number of its workers (docs/scale.md, too).

What grows with the model is counted in vectors of its parameters, of four bytes each.
"""

from testbed.experiment.spec import Spec

MIB = 2**20
PARAMETERS = {"cnn": 211_690, "mlp": 109_386, "mlp-large": 669_706}
"""Parameters of each model; asking the models themselves would load torch."""
SHARED = 2**30
"""Bytes for the libraries, the data and the server, once per run."""
NODE = 8 * MIB
"""Bytes of a forked device beside vectors: its own copies of pages that it shares at first with all
others, and what the kernel keeps of its namespaces, link and sockets."""
STARTED = 270 * MIB
"""Bytes of a container that loads torch and data for itself."""
SIMULATED = 128 * 2**10
"""Bytes of a simulated worker beside vectors."""


def needed(spec: Spec) -> int:
    """Bytes of memory that a run of one algorithm may take."""
    devices = spec.devices.workers + 2
    return SHARED + devices * of_device(spec)


def of_device(spec: Spec) -> int:
    """Bytes of memory that one more device takes of a run of one algorithm."""
    vector = 4 * PARAMETERS[spec.model.name]
    (algorithm,) = spec.algorithms
    # AdaComp's server keeps its counters as they were at each version that a worker computes at.
    counters = vector * (algorithm.name == "adacomp")
    if spec.engine == "simulation":
        # The version that a worker computes at, and what it keeps or sends.
        return SIMULATED + vector + counters + vector * _kept(spec)
    alone = spec.devices.runtime == "docker" and spec.devices.launched == "image"
    # What is on its way to a worker, and the parameters that it holds.
    return (STARTED if alone else NODE) + 2 * vector + counters


def _kept(spec: Spec) -> int:
    """Vectors that a simulated worker has beside the version that it computes at."""
    (algorithm,) = spec.algorithms
    if getattr(algorithm, "error_feedback", False):
        return 1 + (getattr(algorithm, "momentum", None) is not None)
    # A dense gradient waits until it has arrived; of a compressed one there is a part.
    return int(not hasattr(algorithm, "ratio"))
