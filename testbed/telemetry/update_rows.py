"""Records of updates, which a server or a coordinator sends to the orchestrator, and of links."""

from typing import NamedTuple

import numpy as np


class UpdateRow(NamedTuple):
    """One push that the server received, or one step of a peer.

    Attributes:
        iteration: the version that it became part of, from 1; if it was not applied, the version that
            it found, or that a restored server went back to.
        worker: the device's number.
        base_version: the version at which its gradient was computed.
        staleness: updates applied since ``base_version``.
        payload_bytes: size of the encoded update; 0 for a late worker's report. Of a peer, of all that
            it sent since its last row, its own updates and what it passed on or answered.
        message_bytes: size of everything that this worker sent since its last row (framing, pull
            requests, greeting).
        loss: of its mini-batch.
        time: seconds since training began, by the run's clock.
        host_time: the same, by the host's clock.
        applied: False if it was dropped as too late, or lost with a server that was killed.
        server: the index of the server that received it; 0 if there is only one, or none.
    """

    iteration: int
    worker: int
    base_version: int
    staleness: int
    payload_bytes: int
    message_bytes: int
    loss: float
    time: float
    host_time: float
    applied: bool
    server: int = 0


_FORMATS = ("<i8", "<i4", "<i8", "<i8", "<i8", "<i8", "<f4", "<f8", "<f8", "?", "<i4")
UPDATE = np.dtype(list(zip(UpdateRow._fields, _FORMATS, strict=True)))
"""The NumPy type of an ``UpdateRow``."""

LINK = np.dtype(
    [("link", "<i4"), ("up", "?"), ("bytes", "<i8"), ("frames", "<i8"), ("dropped", "<i8")]
)
"""The NumPy type of what was counted in one direction of a link, by the link's index."""
