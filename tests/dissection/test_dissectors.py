"""scapy and tshark read the messages that were sent, by the layer and the dissector of this package."""

import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
from scapy.config import conf
from scapy.sendrecv import sniff
from scapy.sessions import TCPSession
from scapy.utils import rdpcap

from testbed.dissection.scapy_layer import LAYERS, Hello, Message, Pull, Push, messages_in
from testbed.wire.frames import Kind, header
from tests.dissection.as_tshark_reads import as_tshark_reads
from tests.dissection.conversation import Said, conversation, segments, write

FULL, HEADERS = 65_535, 96


@pytest.fixture(params=[40, 700, 1449])
def sent(request: pytest.FixtureRequest, tmp_path: Path) -> list[Said]:
    """The messages of ``c.pcap``, whose packets of up to so many bytes are captured in full."""
    random = Random(request.param)
    said = conversation(random, 5)
    write(tmp_path / "c.pcap", list(segments(random, said, request.param)), FULL, initial=1000)
    return said


def by_kind(rows: list[Any]) -> list[Any]:
    """Sort what each side said apart: a packet's messages are known when its last one is complete."""
    return sorted(rows, key=lambda row: row[0] in ("PARAMETERS", "WELCOME", "STOP"))


def test_a_message_is_written_as_it_is_sent() -> None:
    for kind, layer in LAYERS.items():
        said = Said(True, kind, 0, 0.0, b"abc")
        built = layer(body=b"abc")
        built.encoding = said.data[4]
        assert bytes(built) == said.data
        assert isinstance(Message(said.data), layer)
    push = Push(bytes(Push(base=17, loss=0.5, body=b"1234")) + bytes(Pull()))
    assert push.base == 17 and push.captured == 4 and isinstance(push.payload, Pull)
    push.worker = 3
    text = "Push(worker=3, encoding=range float32, base=17, loss=0.5, 36 bytes)"
    assert push.mysummary() == text
    hello = Hello(bytes(Hello(device=5, incarnation=2)))
    assert (hello.device, hello.incarnation, hello.kills) == (5, 2, 0)
    assert isinstance(Message(b"GET / HTTP/1.1\r\n" * 3), conf.raw_layer)


def test_scapy_puts_messages_together(sent: list[Said], tmp_path: Path) -> None:
    packets = sniff(offline=str(tmp_path / "c.pcap"), session=TCPSession, quiet=True)
    found = [message for packet in packets for message in messages_in(packet)]
    assert {message.worker for message in found} == {3}
    rows = [(m.kind_of_message.name, m.length, bytes(m.body)) for m in found]
    assert by_kind(rows) == by_kind([(one.kind.name, len(one.body), one.body) for one in sent])
    pushes = [(m.base, m.loss) for m in found if isinstance(m, Push)]
    assert pushes == [(one.number, one.loss) for one in sent if one.kind is Kind.PUSH]


def test_a_packet_of_headers_is_the_message_that_begins_in_it(tmp_path: Path) -> None:
    packets = list(segments(None, conversation(Random(3), 3), 1448))
    write(tmp_path / "c.pcap", packets, HEADERS, initial=1000)
    each = [m for packet in rdpcap(str(tmp_path / "c.pcap")) for m in messages_in(packet)]
    together = sniff(offline=str(tmp_path / "c.pcap"), session=TCPSession, quiet=True)
    known = [m for packet in together for m in messages_in(packet)]
    assert [m.mysummary() for m in each] != [m.mysummary() for m in known]  # which know the worker
    for message in known:
        message.worker = None
    assert [m.mysummary() for m in each] == [m.mysummary() for m in known]
    push = next(message for message in each if isinstance(message, Push))
    assert push.captured == 0 and f"{push.length:,} of them not captured" in push.mysummary()


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_puts_messages_together(sent: list[Said], tmp_path: Path) -> None:
    found = as_tshark_reads(tmp_path / "c.pcap", tmp_path)
    assert {one["testbed.worker"] for one in found} == {"3"}
    rows = [
        (
            Kind(int(one["testbed.kind"])).name,
            int(one["testbed.length"]),
            bytes.fromhex(one.get("testbed.body", "").replace(":", "")),
        )
        for one in found
    ]
    assert by_kind(rows) == by_kind([(one.kind.name, len(one.body), one.body) for one in sent])
    pushes = [
        (int(one["testbed.base"]), float(one["testbed.loss"]))
        for one in found
        if "testbed.base" in one
    ]
    assert [base for base, _ in pushes] == [one.number for one in sent if one.kind is Kind.PUSH]
    losses = [one.loss for one in sent if one.kind is Kind.PUSH]
    assert [loss for _, loss in pushes] == pytest.approx(losses, rel=1e-5)


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("length", [2**31, 2**48 - 1, 2**63, 2**64 - 1])
def test_a_message_of_any_pretended_length_is_shown(tmp_path: Path, length: int) -> None:
    head = header(Kind.PUSH, 7, encoding=1, loss=0.5, length=length)
    write(tmp_path / "c.pcap", [(True, 0, head + b"body")], FULL, initial=1000)
    (found,) = as_tshark_reads(tmp_path / "c.pcap", tmp_path)
    assert (found["testbed.base"], found["testbed.length"]) == ("7", str(length))
    assert found["testbed.captured"] == "4"
