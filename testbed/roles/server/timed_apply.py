"""Measuring how long an emulated server takes to apply each update."""

from time import monotonic_ns

from testbed.algorithms.server_half import ServerHalf
from testbed.telemetry.state_board import ServerLine
from testbed.training.parameter_service import Apply, Pushed, apply_update


def measured(line: ServerLine) -> Apply:
    """Return a way to apply updates that also writes on the board how long each took."""

    def apply(half: ServerHalf, worker: int, push: Pushed, time: float) -> int | None:
        began = monotonic_ns()
        delay = apply_update(half, worker, push, time)
        line.applied(monotonic_ns() - began)
        return delay

    return apply
