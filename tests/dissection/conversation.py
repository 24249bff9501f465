"""A conversation of a worker and a server, cut into packets in any way and written as a capture."""

import itertools
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from testbed.training.run_devices import PORT
from testbed.wire.frames import Kind, header

WORKER, SERVER, WORKER_PORT = "10.77.0.5", "10.77.0.1", 40_000


@dataclass(frozen=True)
class Said:
    """A message: which side sends it, its kind and what it says; ``number`` as in its header."""

    worker: bool
    kind: Kind
    number: int
    loss: float
    body: bytes

    @property
    def data(self) -> bytes:
        encoding = 1 if self.kind in (Kind.PUSH, Kind.PARAMETERS) else 0
        length = len(self.body)
        return (
            header(self.kind, self.number, encoding=encoding, loss=self.loss, length=length)
            + self.body
        )


def conversation(random: Random, rounds: int) -> list[Said]:
    """Return greetings, and rounds in which parameters, a push and a pull are sent."""
    said = [
        Said(True, Kind.HELLO, 3, 0.0, random.randbytes(32)),
        Said(False, Kind.WELCOME, 1000, 0.0, b""),
        Said(True, Kind.PULL, 0, 0.0, b""),
    ]
    for version in range(rounds):
        loss = struct.unpack("<f", struct.pack("<f", random.random()))[0]
        said += [
            Said(False, Kind.PARAMETERS, version, 0.0, random.randbytes(random.randrange(2000))),
            Said(True, Kind.PUSH, version, loss, random.randbytes(random.randrange(2000))),
            Said(True, Kind.PULL, 0, 0.0, b""),
        ]
    return [*said, Said(False, Kind.STOP, 0, 0.0, b"")]


def segments(
    random: Random | None, said: Sequence[Said], largest: int
) -> Iterator[tuple[bool, int, bytes]]:
    """Yield side, place and payload of packets; what a side says in one turn may share packets.

    Args:
        random: draws their sizes; None: all but the last of a turn are the largest.
    """
    places = {True: 0, False: 0}
    for worker, turn in itertools.groupby(said, lambda one: one.worker):
        data = b"".join(one.data for one in turn)
        at = 0
        while at < len(data):
            payload = data[at : at + (random.randrange(1, largest) if random else largest)]
            yield worker, places[worker] + at, payload
            at += len(payload)
        places[worker] += len(data)


def write(
    path: Path,
    packets: Sequence[tuple[bool, int, bytes]],
    snap_length: int,
    initial: int = 2**32 - 5000,
    apart: int = 1,
) -> None:
    """Write a capture (pcap, nanoseconds) with SYNs and these packets, some milliseconds ``apart``."""
    rows = [(True, -1, 0x02, b""), (False, -1, 0x12, b"")]
    rows += [(worker, place, 0x18, payload) for worker, place, payload in packets]
    content = [struct.pack("<IHHIIII", 0xA1B23C4D, 2, 4, 0, 0, 65_535, 1)]
    for number, (worker, place, flags, payload) in enumerate(rows):
        ends, ports = (WORKER, SERVER), (WORKER_PORT, PORT)
        addresses = b"".join(map(socket.inet_aton, ends if worker else ends[::-1]))
        sequence = (initial + 1 + place) % 2**32
        packet = (
            bytes(12)
            + struct.pack(">HBBHHHBBH", 0x0800, 0x45, 0, 52 + len(payload), 0, 0, 64, 6, 0)
            + addresses
            + struct.pack(">HHIIBB", *(ports if worker else ports[::-1]), sequence, 0, 0x80, flags)
            + struct.pack(">HHH", 65_535, 0, 0)
            + struct.pack(">BBBBII", 1, 1, 8, 10, 1, 2)  # timestamps
            + payload
        )
        kept = packet[:snap_length]
        time = 1_000_000 + number * apart // 1000, number * apart % 1000 * 10**6
        content += [struct.pack("<IIII", *time, len(kept), len(packet)), kept]
    path.write_bytes(b"".join(content))
