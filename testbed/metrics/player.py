"""Moving replayed runs along with the host's clock, all of them together."""

import time
from collections.abc import Sequence

from testbed.channel import readable
from testbed.metrics.replay import ReplayedRun
from testbed.orchestrator.ending import signals

TICK = 0.1
"""Seconds between two steps."""


def play(runs: Sequence[ReplayedRun], speed: float) -> bool:
    """Move runs from their beginning to their end.

    Args:
        speed: seconds of training in one second; 0 for the end at once.

    Returns:
        Whether the end was reached; False if a signal (SIGINT, SIGTERM, SIGHUP) came before.
    """
    if speed == 0:
        for run in runs:
            run.advance(run.duration)
        return True
    began = time.monotonic()
    with signals() as wake_up:
        while not all(run.finished for run in runs):
            if readable(wake_up, TICK):
                return False
            now = (time.monotonic() - began) * speed
            for run in runs:
                run.advance(now)
    return True
