"""The records that roles send to the orchestrator, and nothing else about them."""

import numpy as np

UPDATE = np.dtype(
    [
        ("iteration", "<i8"),
        ("worker", "<i4"),
        ("base_version", "<i8"),
        ("staleness", "<i8"),
        ("payload_bytes", "<i8"),
        ("message_bytes", "<i8"),
        ("loss", "<f4"),
        ("time", "<f8"),
    ]
)
"""One applied update.

iteration: the version after it, from 1; worker: the device's number; base_version: the version its
gradient was computed from; staleness: updates applied since; payload_bytes: the encoded update;
message_bytes: all that this worker sent since its last update (framing, pull requests, greeting);
loss: of its mini-batch; time: seconds since training began.
"""
