"""Make the halves of a plug-in's algorithm once, so that mistakes in them are found before a start."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from testbed.algorithms import ALGORITHMS, ENTRY_POINTS, algorithm_named
from testbed.algorithms.roles import Part
from testbed.algorithms.server_half import AsynchronousServer
from testbed.algorithms.worker_half import ONE_GRADIENT
from testbed.errors import SpecError, TestbedError
from testbed.experiment.model_conflicts import layout_of
from testbed.planning.images import share_out
from testbed.planning.plan import Plan
from testbed.plugins.names import failures_of, is_plugin
from testbed.training import computation
from testbed.training.slices import slices_of
from testbed.updates import checked


def plugin_of(plan: Plan) -> str | None:
    """Return the name of a run's algorithm if it is a plug-in."""
    name = plan.settings.algorithm.name
    return name if is_plugin(name, ALGORITHMS, ENTRY_POINTS) else None


def check_halves(plan: Plan) -> None:
    """Make a half of each part of a plug-in's algorithm, and have them pass on one gradient.

    A worker's half compresses it if the worker pushes every gradient, and an asynchronous server's
    half applies what it returns. What is built in has tests.

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
        with _told(name, "worker"):
            worker = computation.worker_half(settings, layout, 0)
            if computation.legs(settings, 0) == ONE_GRADIENT:
                update = checked(worker.compress(gradient), layout.total, worker)
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


@contextmanager
def _told(name: str, part: Part) -> Iterator[None]:
    """Turn what a half raises into a ``SpecError`` with its place."""
    half = f"algorithm {name}: its half of the {part}"
    with failures_of(half):
        try:
            yield
        except TestbedError as error:
            raise SpecError(f"{half}: {error}") from error
