"""Make the halves of a plug-in's algorithm once, so that mistakes in them are found before a start."""

from collections.abc import Iterator, Sequence, Set, ValuesView
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from testbed.algorithms import ALGORITHMS, ENTRY_POINTS, algorithm_named
from testbed.algorithms.diagnostic import diagnosed
from testbed.algorithms.peer_half import parcels_of
from testbed.algorithms.roles import Part
from testbed.algorithms.server_half import ServerHalf
from testbed.algorithms.worker_half import WorkerHalf
from testbed.checkpoints.state_encoding import encode
from testbed.checkpoints.stateful import Stateful
from testbed.clock import peer_faults, worker_faults
from testbed.errors import SpecError, TestbedError
from testbed.experiment.model_conflicts import layout_of
from testbed.planning.images import share_out
from testbed.planning.plan import Plan
from testbed.plugins.names import failures_of, is_plugin
from testbed.training import computation
from testbed.training.settings import Settings
from testbed.training.slices import slices_of
from testbed.updates import DenseUpdate, FloatVector, Layout, SparseUpdate, Update, checked

_STORED = {*worker_faults.STORED, *peer_faults.STORED}
_LOCAL_STEPS = 3
"""The most local steps of a leg that are tried: thousands would take as long as the training."""


def plugin_of(plan: Plan) -> str | None:
    """Return the name of a run's algorithm if it is a plug-in."""
    name = plan.settings.algorithm.name
    return name if is_plugin(name, ALGORITHMS, ENTRY_POINTS) else None


def check_halves(plan: Plan) -> None:
    """Make a half of each part of a plug-in's algorithm, and have them pass on one gradient.

    A worker's half makes its first push of it, and a server's half takes that. What is built in has
    tests.

    Raises:
        DataError: the dataset cannot be read.
        SpecError: a half cannot be made or used, or does what halves may not; the text says where.
    """
    name = plugin_of(plan)
    if name is None:
        return
    layout = layout_of(plan.spec)
    settings = replace(plan.settings, images=share_out(plan).images.tolist())
    algorithm, update = algorithm_named(name), None
    parts, kept = algorithm.parts, list[tuple[Part, Stateful]]()
    if "worker" in parts:
        with _told(name, "worker"):
            worker, update = _push_of_plugin(settings, layout)
        if plan.spec.clock == "virtual":  # by the wall clock none is kept
            kept.append(("worker", worker))
    if "server" in parts:
        with _told(name, "server"):
            first = slices_of(settings, layout)[0]
            parameters = np.zeros(first.size, np.float32)
            server = computation.server_half(settings, first.layout, parameters)
            if update is not None and "aggregator" not in parts:
                _have_push_taken(server, first.of(update), settings)
                if server.version and algorithm.diagnostics:
                    diagnosed(server.diagnose(), [one.name for one in algorithm.diagnostics])
        kept.append(("server", server))
    if "aggregator" in parts:
        with _told(name, "aggregator"):
            aggregator = computation.aggregator_half(settings, layout, settings.servers)
            kept.append(("aggregator", aggregator))
    if "peer" in parts:
        with _told(name, "peer"):
            peer = computation.peer_half(settings, layout, np.zeros(layout.total, np.float32), 0)
            gradient = np.linspace(-1, 1, layout.total, dtype=np.float32)
            for parcel in parcels_of(peer, peer.step(gradient)) if peer.ready else ():
                checked(parcel.update, layout.total, peer)
            _check_copies(peer, gradient)
        kept.append(("peer", peer))
    for part, half in kept if plan.checkpoint_every is not None else ():
        with _told(name, part):
            _check_state(half)


def workers_remember(plan: Plan) -> bool:
    """Return True if checkpoints of an emulation need more of workers than servers know of them.

    Servers know what each was sent, and how many mini-batches it has drawn. By the wall clock a worker
    keeps the rest when its server is killed, and begins anew in a run that is resumed.
    """
    settings = plan.settings
    if plan.checkpoint_every is None or plan.spec.clock != "virtual":
        return False
    half = computation.worker_half(settings, layout_of(plan.spec), 0)
    goes_on = not all(leg.asks for leg in computation.legs(settings, 0))
    return bool(goes_on or plan.spec.model.buffers == "per-worker" or half.state())


def first_push(settings: Settings, layout: Layout, gradient: FloatVector) -> Update:
    """Return what worker 0 pushes first if each of its gradients is this one, at parameters of zero.

    Raises:
        SpecError: its half fails, or pushes nothing; the text says where.
    """
    with _told(settings.algorithm.name, "worker"):
        half, parameters = computation.worker_half(settings, layout, 0), np.zeros_like(gradient)
        return _push(half, settings, parameters, gradient.copy())


def _push(
    half: WorkerHalf, settings: Settings, parameters: FloatVector, gradient: FloatVector
) -> Update:
    for leg in computation.legs(settings, 0):
        for step in range(min(leg.gradients - leg.pushes, _LOCAL_STEPS)):
            half.local(step, parameters, gradient, 0)
        if leg.pushes:
            if not leg.asks:
                half.go_on(parameters, gradient, 0)
            return checked(half.compress(gradient), len(gradient), half)
    raise SpecError("none of its legs pushes")


def _push_of_plugin(settings: Settings, layout: Layout) -> tuple[WorkerHalf, Update]:
    """Return a plug-in's half and its first push, which must be the same each time.

    Raises:
        SpecError: it is not, or the half keeps memory that is not its own.
    """
    found = []
    for _ in range(2):
        half = computation.worker_half(settings, layout, 0)
        parameters = np.zeros(layout.total, np.float32)
        gradient = np.linspace(-1, 1, layout.total, dtype=np.float32)
        found.append(_push(half, settings, parameters, gradient))
        _check_copies(half, parameters, gradient)
    if differ(*found):
        raise SpecError(
            "it makes another push of the same gradients the second time, and runs would differ: "
            "draw random numbers from testbed.random_streams.stream(conditions.seed, ...)"
        )
    return half, found[0]


def _have_push_taken(server: ServerHalf, update: Update, settings: Settings) -> None:
    """Have a server's half take a push of worker 0, unless that is to wait for parameters.

    Raises:
        SpecError: the half changes the push, or keeps its memory.
    """
    for worker in range(settings.workers):
        server.joined(worker)
    if (version := server.pull(0, time=0.0)) is None:
        return
    server.outgoing(0)
    before = update.copy()
    server.push(0, update, version, loss=1.0, time=0.0)
    if differ(before, update):
        raise SpecError(
            "it changes the update that it is given, which may be the worker's own: change a copy"
        )
    _check_copies(server, update.values)


def _check_copies(half: Stateful, *given: FloatVector) -> None:
    """Check that no attribute of a half is an array that it was given, which others go on to overwrite.

    Raises:
        SpecError: one is, or has one in it.
    """
    for name, value in vars(half).items():
        held = value.values() if isinstance(value, dict) else value
        for one in held if isinstance(held, ValuesView | Sequence | Set) else [held]:
            array = one.values if isinstance(one, DenseUpdate | SparseUpdate) else one
            if isinstance(array, np.ndarray) and any(
                np.may_share_memory(array, own) for own in given
            ):
                raise SpecError(
                    f"its attribute {name} is what it was given, in memory that others overwrite: "
                    "keep a copy of it"
                )


def differ(one: Update, other: Update) -> bool:
    """Return True if two updates are not of one kind with equal bits."""
    if isinstance(one, SparseUpdate) and isinstance(other, SparseUpdate):
        if not np.array_equal(one.indices, other.indices):
            return True
    elif not (isinstance(one, DenseUpdate) and isinstance(other, DenseUpdate)):
        return True
    return one.values.tobytes() != other.values.tobytes()


def _check_state(half: Stateful) -> None:
    """Check that a checkpoint can keep the state of a half.

    Raises:
        SpecError: it cannot, and the first one would end the run.
    """
    try:
        encode(half.state(), _STORED)
    except TypeError as error:
        raise SpecError(
            f"{error}: keep plain values and arrays, or list the attribute in the class's not_saved if "
            "a new half has it as it should be"
        ) from error


@contextmanager
def _told(name: str, part: Part) -> Iterator[None]:
    """Turn what a half raises into a ``SpecError`` with its place."""
    half = f"algorithm {name}: its half of the {part}"
    with failures_of(half):
        try:
            yield
        except TestbedError as error:
            raise SpecError(f"{half}: {error}") from error
