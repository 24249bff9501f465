"""Tables of captured traffic: names, seconds of training, and stream bytes as payload and framing."""

from pathlib import Path

import numpy as np
import pytest

from testbed.runs.ledgers.ledgers import ConnectionLedger, Ledgers
from testbed.runs.ledgers.tables import by_device
from traffic.accounting import FLOW_COLUMNS, Account
from traffic.packet_totals import QUANTITIES, SECOND_COLUMNS

OBSERVED, SENDER = "10.77.0.1", "10.77.0.5"


@pytest.mark.parametrize(
    ("final", "kills", "framing"),
    [(True, 0, [60, 40]), (False, 0, [60, 0]), (True, 1, [60, 0])],
)
def test_a_stream_is_split_at_the_payload_s_place(
    tmp_path: Path, final: bool, kills: int, framing: list[int]
) -> None:
    """The payload is bytes 60 to 160 of the stream, which has 100 bytes in each of two seconds."""
    connection = ConnectionLedger(
        device="peer-1",
        address=SENDER,
        port=40_000,
        message_bytes=160,
        incomplete_bytes=0,
        payload_bytes=100,
        sent_bytes=0,
        unsent_bytes=0,
        reason=None,
    )
    ledgers = Ledgers(OBSERVED, {SENDER: "peer-1"}, True, began=1000.5, connections=[connection])
    ledgers.server_kills = kills
    if final:
        ledgers.capture, ledgers.counter = {}, {}
    seconds = np.zeros(3, SECOND_COLUMNS)
    seconds["second"], seconds["pair"] = [1001, 1001, 1002], [0, 1, 0]
    seconds["stream_bytes"] = [100, 7, 100]
    found = Account(
        seconds=seconds,
        pairs=((SENDER, OBSERVED), (OBSERVED, SENDER)),
        flows=np.zeros(1, FLOW_COLUMNS),
        totals=dict.fromkeys(QUANTITIES, 0),
        first=None,
        last=None,
        dropped=0,
        assumed=0,
        damage=(),
    )
    rows, flows = by_device(found, ledgers, tmp_path)
    assert rows["second"].to_pylist() == [1, 1, 2]
    assert rows["device"].to_pylist() == ["peer-1"] * 3
    assert rows["direction"].to_pylist() == ["ingress", "egress", "ingress"]
    assert rows["payload_bytes"].to_pylist() == [40, 0, 60]
    assert [rows["framing_bytes"][i].as_py() for i in (0, 2)] == framing
    assert (flows["device"].to_pylist(), flows["direction"].to_pylist()) == (
        ["peer-1"],
        ["ingress"],
    )


def test_a_capture_without_packets_gives_empty_tables_of_text_columns(tmp_path: Path) -> None:
    found = Account(
        seconds=np.zeros(0, SECOND_COLUMNS),
        pairs=(),
        flows=np.zeros(0, FLOW_COLUMNS),
        totals=dict.fromkeys(QUANTITIES, 0),
        first=None,
        last=None,
        dropped=None,
        assumed=0,
        damage=(),
    )
    rows, flows = by_device(found, Ledgers(OBSERVED, {}, True), tmp_path)
    assert rows.num_rows == flows.num_rows == 0
    assert (
        str(rows.schema.field("device").type) == str(flows.schema.field("device").type) == "string"
    )
