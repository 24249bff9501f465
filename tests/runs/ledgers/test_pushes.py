"""The positions of a worker's pushes in the stream of its several connections."""

import numpy as np

from testbed.runs.ledgers.ledgers import ConnectionLedger
from testbed.runs.ledgers.pushes import Pushes, locate


def connection(message: int, payload: int, incomplete: int = 0) -> ConnectionLedger:
    return ConnectionLedger(
        device="worker-0",
        address="10.77.0.5",
        port=1,
        message_bytes=message,
        incomplete_bytes=incomplete,
        payload_bytes=payload,
        sent_bytes=0,
        unsent_bytes=0,
        reason=None,
    )


def test_pushes_lie_after_all_bytes_of_earlier_connections() -> None:
    # First: three pushes of 100 bytes, then 50 bytes of an incomplete one. Second: two pushes.
    message, payload = np.array([196, 164, 164, 196, 164]), np.full(5, 100)
    ends, sizes = locate(
        message, payload, [connection(556, 300, incomplete=50), connection(360, 200)]
    )
    assert ends.tolist() == [196, 360, 524, 606 + 196, 606 + 360]
    assert sizes.tolist() == [100] * 5


def test_a_push_after_training_is_placed_without_a_row() -> None:
    ends, sizes = locate(
        np.array([196]), np.array([100]), [connection(196, 100), connection(360, 100)]
    )
    assert ends.tolist() == [196, 196 + 64 + 100] and sizes.tolist() == [100, 100]


def test_pushes_of_a_run_cut_short_are_placed_without_connections() -> None:
    ends, sizes = locate(np.array([196, 164]), np.array([100, 100]), [])
    assert ends.tolist() == [196, 360] and sizes.tolist() == [100, 100]


def test_payload_is_counted_from_a_push_s_first_byte_to_its_last() -> None:
    pushes = Pushes(ends=np.array([100, 300]), sizes=np.array([50, 100]))
    positions = np.array([0, 50, 75, 100, 200, 250, 300, 400])
    assert pushes.payload_before(positions).tolist() == [0, 0, 25, 50, 50, 100, 150, 150]
