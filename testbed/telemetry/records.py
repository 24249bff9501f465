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
        ("host_time", "<f8"),
        ("applied", "?"),
    ]
)
"""One push that the server took in, or one step of a peer.

iteration: the version that it became part of, from 1; of one that was not applied, the version that
it found, or that a server came back to which had died with it; worker: the device's number;
base_version: the version its gradient was computed from; staleness: updates applied since;
payload_bytes: the encoded update, 0 of a late worker's report; message_bytes: all that this worker
sent since its last row (framing, pull requests, greeting); loss: of its mini-batch; time: seconds
since training began by the run's clock; host_time: by the host's; applied: whether it was not dropped
as too late, or lost with a server that was killed.
"""
