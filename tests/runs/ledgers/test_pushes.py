"""The positions of a worker's pushes in the stream of its several connections."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from testbed.runs.ledgers.ledgers import ConnectionLedger, Ledgers
from testbed.runs.ledgers.pushes import Pushes, locate, locate_pushes


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


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("pulls", [0, 32])
def test_a_push_after_training_ends_where_its_connection_does(rows: int, pulls: int) -> None:
    """The protocol may have pulls or none, and the journal may have rows of the worker or none."""
    message = np.array([64 + pulls + 132, pulls + 132])[:rows]
    received = 64 + (rows + 1) * (pulls + 132)
    payload = 100 * (rows + 1)
    ends, sizes = locate(
        message, np.full(rows, 100), [connection(received, payload), connection(received, payload)]
    )
    assert ends[-1] == 2 * received and sizes.sum() == 2 * payload
    for place, sent in ((received, payload), (2 * received, 2 * payload)):
        assert Pushes(ends, sizes).payload_before(np.array([place])).tolist() == [sent]


@pytest.mark.parametrize("device", ["worker-0", "peer-1"])
def test_a_device_without_rows_has_pushes_over_all_its_connections(
    tmp_path: Path, device: str
) -> None:
    both = [replace(connection(196, 100), device=device), replace(connection(96, 0), device=device)]
    ledgers = Ledgers("10.77.0.1", {"10.77.0.5": device}, True, connections=both)
    (pushes,) = locate_pushes(tmp_path, ledgers).values()
    assert (pushes.ends.tolist(), pushes.sizes.tolist()) == ([196], [100])


def test_a_device_that_pushes_nothing_is_not_located(tmp_path: Path) -> None:
    evaluator = replace(connection(64, 0), device="evaluator")
    ledgers = Ledgers("10.77.0.1", {}, True, connections=[evaluator])
    assert locate_pushes(tmp_path, ledgers) == {}


def test_pushes_of_a_run_cut_short_are_placed_without_connections() -> None:
    ends, sizes = locate(np.array([196, 164]), np.array([100, 100]), [])
    assert ends.tolist() == [196, 360] and sizes.tolist() == [100, 100]


def test_payload_is_counted_from_a_push_s_first_byte_to_its_last() -> None:
    pushes = Pushes(ends=np.array([100, 300]), sizes=np.array([50, 100]))
    positions = np.array([0, 50, 75, 100, 200, 250, 300, 400])
    assert pushes.payload_before(positions).tolist() == [0, 0, 25, 50, 50, 100, 150, 150]
