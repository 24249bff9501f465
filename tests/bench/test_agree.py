"""The wire bytes of an emulation and a simulation may differ by a little, and not by more."""

from typing import Any

import pytest

from bench.agree import Pair, impossible_bytes


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


@pytest.mark.parametrize(("undelivered", "agree"), [(1_000_000, True), (900_000, False)])
def test_what_a_dead_peer_had_under_way_may_have_passed(undelivered: int, agree: bool) -> None:
    """A million bytes of messages are 1.05 million on the wire."""
    peers = {"peer-0": {"parameters_sha256": None, "undelivered_bytes": undelivered}}
    measured, modelled = (summary(wire, peers=peers) for wire in (11_050_000, 10_000_000))
    assert Pair("namespaces", measured, modelled).wire_differs is not agree


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"payload_bytes": 10}, "more payload than messages"),
        ({"message_bytes": 1_000}, "messages take 1066 bytes, and 1000 passed"),
        ({"wire_bytes": 1_001}, "wire_bytes: 1001 by the last update, 1000 in the end"),
    ],
)
def test_bytes_of_one_run_that_contradict_each_other_are_told(
    changes: dict[str, int], text: str
) -> None:
    whole = summary(1_000)
    assert impossible_bytes(whole) == []
    changed = whole | {"ingress": whole["ingress"] | changes}
    assert any(text in one for one in impossible_bytes(changed))
    pair = Pair("namespaces", changed, changed)
    assert sum(text in one for one in pair.differences()) == 2


@pytest.mark.parametrize("kind", ["servers", "peers"])
def test_parts_have_to_make_up_the_whole(kind: str) -> None:
    part = {"payload_bytes": 4, "message_bytes": 4, "wire_bytes": 500}
    rest = {"payload_bytes": 5, "message_bytes": 5, "wire_bytes": 500}
    whole = summary(1_000, **{kind: {"a-0": part, "a-1": rest}})
    assert impossible_bytes(whole) == []
    lacking = whole | {kind: {"a-0": part}}
    assert len(impossible_bytes(lacking)) == 3
    pair = Pair("namespaces", lacking, whole)
    assert any(one.startswith("parts: ['a-0'] emulated") for one in pair.differences())
