"""The content of a capture file: batches of packets, described by arrays, and their interfaces.

``pcap_reading`` and ``pcapng_reading`` return these types, and everything else takes them.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traffic import TrafficError

LINK_HEADERS = {1: 14, 101: 0, 12: 0, 14: 0, 228: 0, 229: 0, 113: 16, 276: 20}
"""Bytes before the network header by LINKTYPE_: Ethernet, raw IP (five values), Linux cooked 1, 2."""
LONGEST = 2**24
"""Bytes of the longest packet, or block of a pcapng file; a greater length is damage."""
_NANOSECONDS = 1_000_000_000


class DamagedError(TrafficError):
    """A capture file that cannot be read on from some place; the packets before that were read."""


@dataclass(frozen=True, slots=True)
class Records:
    """Packets of a file that follow each other.

    Attributes:
        link: int64, a key of ``LINK_HEADERS``: the LINKTYPE_ of the interface of each.
        buffer: uint8, the bytes that hold them, followed by ``chunks.MARGIN`` bytes of 0.
        at: where each packet begins in ``buffer``.
        time: int64, nanoseconds since 1970 (UTC).
        length: int64, bytes of the whole packet, without its frame check sequence.
        kept: int64, bytes of it that are in ``buffer``; not more than ``length``.
    """

    link: npt.NDArray[np.int64]
    buffer: npt.NDArray[np.uint8]
    at: npt.NDArray[np.intp]
    time: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    kept: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.at)


@dataclass(slots=True)
class Interface:
    """An interface of a capture file.

    Attributes:
        link_type: LINKTYPE_ number.
        ticks: ticks of its clock per second: a power of 10 up to 10¹⁸, or of 2 up to 2⁶³.
        offset: seconds to add to its times.
        checksum: bytes of the frame check sequence at the end of its packets, which are not counted.
        name: its name; empty if the file does not say.
        received: packets that passed the filter, in all; None if the file does not say.
        dropped: packets that the kernel dropped, likewise.
    """

    link_type: int
    ticks: int = 1_000_000
    offset: int = 0
    checksum: int = 0
    name: str = ""
    received: int | None = None
    dropped: int | None = None

    def nanoseconds(self, time: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Return times of this interface's clock as whole nanoseconds since 1970, rounded down.

        With a clock of more than 2³⁴ ticks (a power of 2) they may be less by one.
        """
        seconds, rest = np.divmod(time, np.uint64(self.ticks))
        if _NANOSECONDS % self.ticks == 0:
            part = rest * np.uint64(_NANOSECONDS // self.ticks)
        elif self.ticks % _NANOSECONDS == 0:
            part = rest // np.uint64(self.ticks // _NANOSECONDS)
        else:
            exponent = self.ticks.bit_length() - 1
            # 34 bits times 10⁹ are the most that 64 bits hold.
            fine = np.uint64(max(exponent - 34, 0))
            part = (rest >> fine) * np.uint64(_NANOSECONDS) >> np.uint64(min(exponent, 34))
        whole = (seconds.astype(np.int64) + self.offset) * _NANOSECONDS
        return whole + part.astype(np.int64)
