"""The messages found in a capture are those that were sent, whatever the packets and what was kept."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from testbed.dissection.captured_messages import CapturedMessage, read_messages
from testbed.wire.frames import HEADER, Kind
from tests.dissection.conversation import (
    SERVER,
    WORKER,
    Said,
    conversation,
    segments,
    write,
)
from traffic.accounting import account

FULL, HEADERS = 65_535, 96


def of_side(messages: list[CapturedMessage], worker: bool) -> list[CapturedMessage]:
    own = [m for m in messages if m.direction.source == (WORKER if worker else SERVER)]
    return sorted(own, key=lambda message: message.place)


def expected_fields(one: Said) -> dict[str, int | float | str]:
    match one.kind:
        case Kind.HELLO:
            return {"device": one.number, "incarnation": 0, "kills": 0}
        case Kind.WELCOME:
            return {"parameters": one.number, "returns": 0}
        case Kind.PARAMETERS:
            return {"encoding": "dense float32", "version": one.number, "batch": 0}
        case Kind.PUSH:
            dense = "dense float32"
            return {"encoding": dense, "base": one.number, "loss": one.loss, "updates": 0}
        case _:
            return {}


@pytest.mark.parametrize("seed", range(12))
def test_packets_in_full_give_every_message_in_any_order_of_arrival(
    tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    said = conversation(random, 4)
    packets = list(segments(random, said, random.choice([8, 40, 1449])))
    again = 0
    for index in range(1, len(packets) - 1):
        if random.random() < 0.2:
            packets[index], packets[index + 1] = packets[index + 1], packets[index]
    for index in range(len(packets) - 1, 0, -1):
        if random.random() < 0.1:
            worker, place, data = packets[index]
            packets.insert(index + 1, (worker, place, data[: random.randint(1, len(data))]))
            again += 1
    write(tmp_path / "c.pcap", packets, FULL, apart=seed % 2)
    messages, damage = read_messages([tmp_path / "c.pcap"])
    assert damage == []
    for worker in (True, False):
        own, sent = of_side(messages, worker), [one for one in said if one.worker is worker]
        assert [(m.kind, m.fields, m.size) for m in own] == [
            (one.kind, expected_fields(one), len(one.data)) for one in sent
        ]
        assert all(message.whole for message in own)
    assert sum(message.size for message in messages) == sum(len(one.data) for one in said)
    counted = account([tmp_path / "c.pcap"]).totals
    carried = counted["wire_bytes"] - counted["connection_bytes"]
    assert sum(message.wire_bytes for message in messages) == carried
    assert (sum(message.sent_again for message in messages) > 0) == (again > 0)


@pytest.mark.parametrize("seed", range(12))
def test_headers_give_the_messages_that_begin_a_packet(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    said = conversation(random, 6)
    packets = list(segments(random, said, 1449))
    write(tmp_path / "c.pcap", packets, HEADERS)
    messages, _ = read_messages([tmp_path / "c.pcap"])
    begun = {(worker, place): len(data) for worker, place, data in packets}
    for worker in (True, False):
        place, begin_packet, anywhere = 0, [], []
        for one in said:
            if one.worker is worker:
                row = place, one.kind, expected_fields(one), len(one.data)
                anywhere.append(row)
                if begun.get((worker, place), 0) >= HEADER.size:
                    begin_packet.append(row)
                place += len(one.data)
        own = of_side(messages, worker)
        found = [(m.place, m.kind, m.fields, m.size) for m in own if m.kind is not None]
        assert all(row in anywhere for row in found)
        assert all(row in found for row in begin_packet) and len(begin_packet) > 3
        # The unknown ones lie between those, and nothing is counted twice or left out.
        assert sum(message.size for message in own) == place
        ends = [0, *(message.place + message.size for message in own)]
        assert [message.place for message in own] == ends[:-1]


def test_a_message_that_was_cut_off_is_not_whole(tmp_path: Path) -> None:
    said = [*conversation(Random(1), 1)[:4], Said(True, Kind.PUSH, 0, 0.5, bytes(1000))]
    packets = list(segments(None, said, 300))
    write(tmp_path / "c.pcap", packets[:-1], HEADERS)
    last = max(read_messages([tmp_path / "c.pcap"])[0], key=lambda message: message.begin)
    assert last.kind is Kind.PUSH and not last.whole
    assert last.announced == last.size + len(packets[-1][2])


@pytest.mark.parametrize("size", [1_000, 20_000_000])
def test_what_follows_lost_packets_is_found_again(tmp_path: Path, size: int) -> None:
    """However many bytes of the stream are lost, among them the second push's header."""
    said = conversation(Random(2), 5)
    of_worker = [index for index, one in enumerate(said) if one.kind is Kind.PUSH]
    said[of_worker[1]] = replace(said[of_worker[1]], body=bytes(size))
    packets = list(segments(None, said, 60_000))
    begin = sum(len(one.data) for one in said[: of_worker[1]] if one.worker)
    lost = [
        (worker, place, data)
        for worker, place, data in packets
        if not (worker and begin <= place < begin + size)
    ]
    write(tmp_path / "c.pcap", lost, FULL)
    found = of_side(read_messages([tmp_path / "c.pcap"])[0], worker=True)
    bases = [message.fields["base"] for message in found if message.kind is Kind.PUSH]
    assert bases == [0, 2, 3, 4]
    assert sum(m.size for m in found) == sum(len(data) for worker, _, data in lost if worker)
