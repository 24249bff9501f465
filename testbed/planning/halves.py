"""Make the halves of a plug-in's algorithm once, so that mistakes in them are found before a start."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from testbed.algorithms import ALGORITHMS, ENTRY_POINTS, algorithm_named
from testbed.algorithms.roles import Part
from testbed.algorithms.server_half import AsynchronousServer
from testbed.errors import SpecError, TestbedError
from testbed.experiment.model_conflicts import layout_of
from testbed.planning.images import share_out
from testbed.planning.plan import Plan
from testbed.plugins.names import failures_of, is_plugin
from testbed.training import computation
from testbed.training.settings import Settings
from testbed.training.slices import slices_of
from testbed.updates import FloatVector, Layout, Update, checked

_LOCAL_STEPS = 3
"""The most local steps of a leg that are tried: thousands would take as long as the training."""


def plugin_of(plan: Plan) -> str | None:
    """Return the name of a run's algorithm if it is a plug-in."""
    name = plan.settings.algorithm.name
    return name if is_plugin(name, ALGORITHMS, ENTRY_POINTS) else None


def check_halves(plan: Plan) -> None:
    """Make a half of each part of a plug-in's algorithm, and have them pass on one gradient.

    A worker's half makes its first push of it, and an asynchronous server's half applies that. What is
    built in has tests.

    Raises:
        DataError: the dataset cannot be read.
        SpecError: a half cannot be made or used; the text says where.
    """
    name = plugin_of(plan)
    if name is None:
        return
    layout = layout_of(plan.spec)
    settings = replace(plan.settings, images=share_out(plan).images.tolist())
    parts, update = algorithm_named(name).parts, None
    gradient = np.linspace(-1, 1, layout.total, dtype=np.float32)
    zeros = np.zeros(layout.total, np.float32)
    if "worker" in parts:
        update = first_push(settings, layout, gradient)
    if "server" in parts:
        first = slices_of(settings, layout)[0]
        with _told(name, "server"):
            server = computation.server_half(settings, first.layout, zeros[: first.size])
            if update is not None and isinstance(server, AsynchronousServer):
                server.pull(0, time=0.0)
                server.push(0, first.of(update), server.version, time=0.0)
    if "aggregator" in parts:
        with _told(name, "aggregator"):
            computation.aggregator_half(settings, layout, 1)
    if "peer" in parts:
        with _told(name, "peer"):
            computation.peer_half(settings, layout, zeros, 0)


def first_push(settings: Settings, layout: Layout, gradient: FloatVector) -> Update:
    """Return what worker 0 pushes first if each of its gradients is this one, at parameters of zero.

    Raises:
        SpecError: its half fails, or pushes nothing; the text says where.
    """
    with _told(settings.algorithm.name, "worker"):
        half = computation.worker_half(settings, layout, 0)
        parameters = np.zeros(layout.total, np.float32)
        for leg in computation.legs(settings, 0):
            for step in range(min(leg.gradients - leg.pushes, _LOCAL_STEPS)):
                half.local(step, parameters, gradient.copy(), 0)
            if leg.pushes:
                if not leg.asks:
                    half.go_on(parameters, gradient, 0)
                return checked(half.compress(gradient.copy()), layout.total, half)
        raise SpecError("none of its legs pushes")


@contextmanager
def _told(name: str, part: Part) -> Iterator[None]:
    """Turn what a half raises into a ``SpecError`` with its place."""
    half = f"algorithm {name}: its half of the {part}"
    with failures_of(half):
        try:
            yield
        except TestbedError as error:
            raise SpecError(f"{half}: {error}") from error
