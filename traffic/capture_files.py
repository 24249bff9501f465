"""Open a capture file, pcap or pcapng, and read its packets in batches.

A file that is cut off or damaged yields the packets before the damage, and then an error that names the
place.
"""

import errno
import io
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from traffic import TrafficError, pcap_reading, pcapng_reading
from traffic.packet_batches import DamagedError, Interface, Records

__all__ = ["CaptureFile", "DamagedError", "Interface", "Records"]

_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"BZh": "bzip2",
    b"\xfd7zX": "xz",
}
"""The first bytes of compressed files, and the programs that unpack them."""


@dataclass(slots=True)
class CaptureFile:
    """A capture file being read, with the interfaces found so far; iterate over ``records``."""

    path: Path
    interfaces: list[Interface] = field(default_factory=list)

    def records(self) -> Iterator[Records]:
        """Yield the packets in batches of one link type, in the file's order.

        Raises:
            DamagedError: the file is damaged, or what follows is of a kind that is not read; raised
                after the last readable packet.
            TrafficError: the file cannot be opened or is no capture at all.
        """
        try:
            with self._opened() as file:
                head = file.read(4)
                file.seek(0)
                if pcap_reading.byte_order(head):
                    yield from pcap_reading.read(file, self.interfaces)
                elif head == struct.pack("<I", pcapng_reading.SECTION):
                    yield from pcapng_reading.read(file, self.interfaces)
                else:
                    content = f"it begins with {head.hex(' ')}" if head else "it is empty"
                    for magic, program in _COMPRESSED.items():
                        if head.startswith(magic):
                            content = f"it is compressed: unpack it ({program} -d)"
                    raise TrafficError(
                        f"{self.path} is neither a pcap nor a pcapng file: {content}"
                    )
        except pcap_reading.Damage as damage:
            raise DamagedError(
                f"{self.path} {damage.what} byte {damage.place:,}: {damage.why}; the packets before it "
                "were read"
            ) from None
        except OSError as error:
            raise TrafficError(f"{self.path} cannot be read: {error.strerror}") from error

    def _opened(self) -> io.FileIO:
        """Open the file; a pipe, which would block until somebody writes to it, is refused."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            is_directory = stat.S_ISDIR(mode)
            raise OSError(errno.EINVAL, "it is a directory" if is_directory else "it is no file")
        return io.FileIO(descriptor)
