"""Capture headers into files, up to the last packet that passed before a request to stop.

The files are pcapng, complete after each block that the kernel hands over, so that a capture that is
killed leaves the packets it had. A new file is begun when one is full. At the bound on their total
size the capture goes on counting but keeps nothing more: the beginning of a capture, with its
connections' SYNs, is worth more than its end.
"""

import select
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

from traffic import TrafficError, filters, pcapng_writing
from traffic.acknowledgements import PureAcks
from traffic.packet_ring import BLOCKS, RETIRE, PacketRing, Packets

FILE_SIZE = 256 * 2**20
TOTAL_SIZE = 4 * 2**30
SNAP_LENGTH = 128
"""Bytes kept of a packet: Ethernet with a VLAN tag, IPv6 and TCP with all its options are 118."""
DRAIN_TIMEOUT = 5.0
"""Seconds to wait, at the end, for the kernel to hand over its last blocks."""
_WRITER = "testbed traffic"


@dataclass(frozen=True, slots=True)
class CaptureResult:
    """The result of a capture.

    Attributes:
        records: packets in the files.
        dropped: packets that the kernel had no room for.
        left_out: packets that came after the files had reached their bound, or after an error.
        bytes: size of the files.
        files: their names, in order.
        error: why it stopped to keep packets early, e.g. a full disk; None if it did not.
        acknowledgements: pure ACKs to the address asked for; None if they were not counted.
    """

    records: int
    dropped: int
    left_out: int
    bytes: int
    files: tuple[str, ...]
    error: str | None = None
    acknowledgements: int | None = None

    @property
    def complete(self) -> bool:
        """True if every packet that passed is in the files."""
        return not (self.dropped or self.left_out or self.error)

    def to_json(self) -> dict[str, object]:
        """Return the result as a JSON object."""
        fields = asdict(self) | {"complete": self.complete}
        if self.acknowledgements is None:
            del fields["acknowledgements"]
        return fields


@dataclass(frozen=True, slots=True)
class Reporting:
    """Progress reports of a capture.

    Attributes:
        period: the least seconds between two reports; there is none while nothing passes.
        report: called with the packets kept, the packets dropped and the pure ACKs so far.
        acknowledgements: the counter of pure ACKs.
    """

    period: float
    report: Callable[[int, int, int], None]
    acknowledgements: PureAcks


class Files:
    """The files of one capture: ``NAME.pcapng``, then ``NAME-2.pcapng``, …

    Attributes:
        records: packets in them.
        left_out: packets given to ``keep`` that are not in them.
        error: why nothing more can be written; None if there was no error.
    """

    def __init__(
        self, first: Path, head: bytes, file_size: int, total_size: int, ring: PacketRing
    ) -> None:
        """Create the first file.

        Raises:
            TrafficError: it exists already or cannot be made.
        """
        self._first = first
        self._head = head
        self._file_size = file_size
        self._total_size = total_size
        self._ring = ring
        self._paths: list[Path] = []
        self._bytes = 0
        self.records = self.left_out = 0
        self.error: str | None = None
        self._file = self._begin()
        self._written = len(head)

    def keep(self, batch: Packets) -> None:
        """Append packets; once the bound or an error is reached, count them as left out."""
        if not self.left_out:
            try:
                if self._write(pcapng_writing.packets(batch)):
                    self.records += len(batch)
                    return
            except OSError as error:
                self.error = f"writing {self._paths[-1]}: {error.strerror}"
            except TrafficError as error:
                self.error = str(error)
        self.left_out += len(batch)

    def _write(self, data: memoryview) -> bool:
        """Append data, in a new file if needed; return False if that would exceed the bound."""
        statistics = len(pcapng_writing.statistics(0, 0, 0))
        turn = self._written + len(data) + statistics > self._file_size
        turn = turn and self._written > len(self._head)
        rest = statistics + turn * (len(self._head) + statistics)
        if self._bytes + len(data) + rest > self._total_size:
            return False
        if turn:
            following = self._begin()
            self._end()
            self._file, self._written = following, len(self._head)
        self._append(self._file, data)
        self._written += len(data)
        return True

    def _begin(self) -> IO[bytes]:
        number = len(self._paths) + 1
        first = self._first
        path = first if number == 1 else first.with_stem(f"{first.stem}-{number}")
        try:
            file = path.open("xb", buffering=0)
            self._append(file, memoryview(self._head))
        except OSError as error:
            raise TrafficError(
                f"{path} cannot be made ({error.strerror}): name another file"
            ) from error
        self._paths.append(path)
        return file

    def _end(self) -> None:
        dropped = self._ring.statistics()[1]
        passed, missing = self._ring.received + dropped, dropped + self.left_out
        block = pcapng_writing.statistics(time.time_ns(), passed, missing)
        try:
            self._append(self._file, memoryview(block))
        finally:
            self._file.close()

    def _append(self, file: IO[bytes], data: memoryview) -> None:
        """Write all of the data or none of it: half a block would hide what follows."""
        end = file.tell()
        left = data
        try:
            while left:
                left = left[file.write(left) :]
        except OSError:
            file.truncate(end)
            file.seek(end)
            raise
        self._bytes += len(data)

    def close(self) -> CaptureResult:
        """Write the last file's statistics block and close it; return the capture's result."""
        try:
            self._end()
        except OSError as error:
            self.error = self.error or f"writing {self._paths[-1]}: {error.strerror}"
        return CaptureResult(
            self.records,
            self._ring.dropped,
            self.left_out,
            self._bytes,
            tuple(path.name for path in self._paths),
            self.error,
        )


def capture(
    interface: str,
    file: Path,
    stop: Sequence[int],
    *,
    program: Sequence[filters.Instruction],
    filter_text: str = "",
    snap_length: int = SNAP_LENGTH,
    file_size: int = FILE_SIZE,
    total_size: int = TOTAL_SIZE,
    promiscuous: bool = False,
    blocks: int = BLOCKS,
    started: Callable[[], None] | None = None,
    reporting: Reporting | None = None,
) -> CaptureResult:
    """Capture what passes an interface of the current network namespace.

    Args:
        file: the first file to write; must not exist.
        stop: descriptors; the capture ends when one of them becomes readable.
        program: the kernel's filter, which cuts packets to ``snap_length``.
        filter_text: the same filter in words, for readers of the file.
        file_size: bytes after which another file is begun.
        total_size: bytes that all files together may have.
        blocks: MiB of memory for packets that have passed and are not read yet.
        started: called without arguments once packets are being received.

    Raises:
        TrafficError: the interface or the file cannot be opened.
    """
    ring = PacketRing(interface, program, snap_length, blocks, promiscuous)
    try:
        head = pcapng_writing.header(interface, snap_length, filter_text, _WRITER)
        files = Files(file, head, file_size, total_size, ring)
        if started is not None:
            started()
        gone = _follow(ring, files, stop, reporting)
        files.error = files.error or gone
        result = files.close()
        if reporting is not None:
            result = replace(result, acknowledgements=reporting.acknowledgements.count)
        return result
    finally:
        ring.close()


def _follow(
    ring: PacketRing, files: Files, stop: Sequence[int], reporting: Reporting | None
) -> str | None:
    """Keep packets until a request to stop; return why it ended earlier, or None if it did not."""
    next_report = 0.0

    def keep_all() -> None:
        while (batch := ring.receive()) is not None:
            files.keep(batch)
            if reporting is not None:
                reporting.acknowledgements.add(batch)

    poll = select.poll()
    poll.register(ring.socket, select.POLLIN)
    for descriptor in stop:
        poll.register(descriptor, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        keep_all()
        if reporting is not None and time.monotonic() >= next_report:
            next_report = time.monotonic() + reporting.period
            ring.statistics()
            reporting.report(files.records, ring.dropped, reporting.acknowledgements.count)
        if not ready.keys().isdisjoint(stop):
            break
        if ready.get(ring.socket.fileno(), 0) & select.POLLERR and (gone := ring.trouble()):
            return gone
    # The kernel hands over its last block only once that has been open for ``RETIRE``.
    goal = ring.passed()
    deadline = time.monotonic() + DRAIN_TIMEOUT
    while ring.received < goal and time.monotonic() < deadline:
        time.sleep(RETIRE / 4)
        keep_all()
    if ring.received < goal:
        return f"the kernel did not hand over the last {goal - ring.received:,} packets"
    return None
