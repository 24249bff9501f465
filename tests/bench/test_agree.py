"""The wire bytes of an emulation and a simulation may differ by a little, and not by more."""

from typing import Any

import pytest

from bench.agree import Pair


def summary(wire: int, **more: Any) -> dict[str, Any]:
    counted = {"payload_bytes": 9, "message_bytes": 9, "wire_bytes": wire}
    both = {"ingress": counted, "ingress_after_drain": counted}
    same = {"ended": "completed", "updates": 1, "parameters_sha256": "0", "training_seconds": 1.0}
    return {**both, **same, "traffic": {"reconciled": True}, **more}


@pytest.mark.parametrize(
    ("measured", "modelled", "faults", "agree"),
    [
        (10_000_000, 10_049_000, {}, True),
        (10_000_000, 10_051_000, {}, False),
        (10_000_000, 9_949_000, {}, False),
        (250_000, 252_600, {}, True),  # 40 acknowledgements
        (250_000, 252_700, {}, False),
        (250_000, 247_300, {}, False),
        (10_000_000, 9_901_000, {"stop-network": 1}, True),  # sent again
        (10_000_000, 9_899_000, {"stop-network": 1}, False),
        (10_000_000, 10_051_000, {"stop-network": 1}, False),
        (10_000_000, 9_949_000, {"freeze": 1}, False),
    ],
)
def test_wire_bytes_agree_within_what_a_host_may_vary(
    measured: int, modelled: int, faults: dict[str, int], agree: bool
) -> None:
    pair = Pair("namespaces", summary(measured, faults=faults), summary(modelled))
    assert (pair.differences() == []) is agree
