"""Records of updates, which a server or the coordinator of peers sends to the orchestrator."""

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
        payload_bytes: size of the encoded update; 0 for a late worker's report.
        message_bytes: size of everything that this worker sent since its last row (framing, pull
            requests, greeting).
        loss: of its mini-batch.
        time: seconds since training began, by the run's clock.
        host_time: the same, by the host's clock.
        applied: False if it was dropped as too late, or lost with a server that was killed.
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


_FORMATS = ("<i8", "<i4", "<i8", "<i8", "<i8", "<i8", "<f4", "<f8", "<f8", "?")
UPDATE = np.dtype(list(zip(UpdateRow._fields, _FORMATS, strict=True)))
"""The NumPy type of an ``UpdateRow``."""
