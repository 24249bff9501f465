"""The memory that a run takes: the only place for the figures and for how they were measured.

An emulation: ``python -m bench.scale`` measures a worker's private memory, and all that its device
takes of the host, with the kernel's namespaces, page tables and socket buffers (see docs/scale.md).
A simulation: the peak of its resident memory by the number of its workers (docs/scale.md, too).

Memory that grows with the model is counted in vectors of its parameters, of four bytes each.
"""

from typing import TYPE_CHECKING

from testbed.algorithms import algorithm_named
from testbed.algorithms.compression import CompressionOptions
from testbed.algorithms.interface import AsynchronousOptions, PeerOptions

if TYPE_CHECKING:
    from testbed.experiment.spec import Spec

MIB = 2**20
CNN = 211_690
"""Parameters of AdaComp's model for MNIST."""
SHARED = 2**30
"""Bytes per run for the libraries, the data and the server."""
NODE = 9 * MIB
"""Bytes of a forked device without vectors: its own copies of pages that all devices share at first,
and the kernel's memory for its namespaces, link and sockets."""
STARTED = 270 * MIB
"""Bytes of a container that loads torch and data for itself, without vectors."""
PROCESS = 16 * MIB
"""Bytes of each process that computes gradients of a simulation for itself."""
SIMULATED = 128 * 2**10
"""Bytes of a simulated worker without vectors."""


def needed(spec: "Spec") -> int:
    """Return the bytes of memory that a run of one algorithm may take."""
    devices = spec.devices.workers + 1 + spec.devices.servers
    processes = (spec.simulation.processors or 1) - 1 if spec.engine == "simulation" else 0
    return SHARED + PROCESS * processes + devices * per_device(spec)


def per_device(spec: "Spec") -> int:
    """Return the bytes of memory that one more device takes in a run of one algorithm."""
    # Here, because it imports torch: `testbed doctor` reads the figures only.
    from testbed.experiment.model_conflicts import described

    vector = 4 * described(spec).vector(spec.model.buffers)
    at_server = vector * at_server_per_worker(spec)
    if spec.engine == "simulation":
        # The version that the worker computes at, the next one with a send queue, and the vectors that
        # it keeps or sends.
        return (
            SIMULATED
            + vector * (1 + _overlaps(spec))
            + at_server
            + vector * _kept(spec)
            + waiting(spec)[1]
        )
    alone = spec.devices.runtime == "docker" and spec.devices.launched == "image"
    # The parameters on their way to the worker, and those that it holds; of several servers also the
    # slices that came before the last ones, and with a send queue a gradient that waits.
    held = 2 + (spec.devices.servers > 1) + _overlaps(spec)
    return (STARTED if alone else NODE) + held * vector + at_server + waiting(spec)[1]


def at_server_per_worker(spec: "Spec") -> int:
    """Return the number of vectors that the servers together keep for each worker."""
    (algorithm,) = spec.algorithms
    return algorithm_named(algorithm.name).vectors_per_worker(algorithm)


def waiting(spec: "Spec") -> tuple[int, int]:
    """Return the rounds whose messages may wait to leave a peer besides the last, and their bytes.

    Where any number may wait, that depends on how much faster a peer computes than its uplink sends.
    """
    (algorithm,) = spec.algorithms
    if not isinstance(algorithm, PeerOptions) or algorithm.queued_rounds == 1:
        return 0, 0
    # Imported only here: it needs torch, which the check of a host does not wait for.
    from testbed.experiment.model_conflicts import described

    rounds = spec.training.updates / spec.devices.workers
    # Equation (3) of Ako, which chooses None, has what a round sends leave during it.
    parts = getattr(algorithm, "partitions", 1)
    vector = 4 * described(spec).vector(spec.model.buffers)
    sent = vector * (spec.devices.workers - 1) / (parts or 1)
    if algorithm.queued_rounds is not None:
        rounds = min(rounds, algorithm.queued_rounds)
    elif (rate := spec.link_of(None).up.rate) is None or parts is None:
        rounds = 0
    elif spec.gradient_time is not None and sent:
        rounds *= max(0.0, 1 - spec.gradient_time * rate / (8 * sent))
    more = max(0, round(rounds) - 1)
    # In a simulation the receivers of an update share it.
    return more, more * round(vector if spec.engine == "simulation" else sent)


def _overlaps(spec: "Spec") -> bool:
    """Return True if workers compute while their pushes are on their way."""
    (algorithm,) = spec.algorithms
    return isinstance(algorithm, AsynchronousOptions) and algorithm.overlaps


def _kept(spec: "Spec") -> int:
    """Return the number of vectors of a simulated worker besides the version that it computes at."""
    (algorithm,) = spec.algorithms
    if getattr(algorithm, "error_feedback", False):
        by_worker = isinstance(algorithm, CompressionOptions) and algorithm.momentum is not None
        # On several processors also those before its last computation (simulation/process_pool.py).
        return (1 + by_worker) * (1 if spec.simulation.processors == 1 else 2)
    # A dense gradient is kept until it has arrived; a compressed one is only a part of a vector.
    return int(getattr(algorithm, "ratio", None) is None)
