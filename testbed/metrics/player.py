"""Playing replayed runs by the host's clock, all of them together."""

import os
import time
from collections.abc import Sequence

from testbed.channel import readable
from testbed.metrics.replay import ReplayedRun
from testbed.runs.ending import signals

TICK = 0.1
"""Seconds between two steps."""


def play(runs: Sequence[ReplayedRun], speed: float) -> int | None:
    """Move runs from their beginning to their end.

    Args:
        speed: seconds of training in one second; 0 to jump to the end.

    Returns:
        The signal (SIGINT, SIGTERM, SIGHUP) that stopped the replay; None if it reached the end.
    """
    if speed == 0:
        for run in runs:
            run.advance(run.duration)
        return None
    began = time.monotonic()
    with signals() as wake_up:
        while not all(run.finished for run in runs):
            if readable(wake_up, TICK):
                return os.read(wake_up, 1)[0]
            now = (time.monotonic() - began) * speed
            for run in runs:
                run.advance(now)
    return None
