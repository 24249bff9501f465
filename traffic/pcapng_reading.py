"""Read pcapng files (IETF draft-ietf-opsawg-pcapng): sections, interfaces, enhanced packet blocks.

Packets come in runs of enhanced packet blocks, which have a loop of their own; every other block is
rare. Blocks that hold no packet, interface or count are skipped. Obsolete packet blocks have the same
fields in other places; simple ones have no time, without which a packet is in no second.
"""

import struct
from collections.abc import Iterator
from typing import IO

import numpy as np

from traffic.chunks import Chunk, chunks
from traffic.packet_batches import LINK_HEADERS, LONGEST, Interface, Records
from traffic.pcap_reading import Damage, Unknown, unknown_link_type

SECTION = 0x0A0D0D0A  # the same in both byte orders
_INTERFACE, _PACKET, _SIMPLE, _STATISTICS, _ENHANCED = 1, 2, 3, 5, 6
_BYTE_ORDER = 0x1A2B3C4D
_NAME, _RESOLUTION, _CHECKSUM, _OFFSET = 2, 9, 13, 14  # options of an interface
_CHECKSUMS = {0: 0, 2: 2, 4: 4, 16: 2, 32: 4}
"""Bytes of a frame check sequence by the option's value: in bits, or in bytes as Wireshark takes it."""
_FLAGS = 2  # option of a packet
_TIMELESS = "a packet without its time (a simple packet block)"
_RECEIVED, _DROPPED = 4, 5  # options of its statistics
_FARTHEST = 2**33
"""Largest offset of a clock in seconds, so that times fit into 64 bits of nanoseconds."""


def read(file: IO[bytes], interfaces: list[Interface]) -> Iterator[Records]:
    """Yield the packets of a pcapng file and add its interfaces to ``interfaces``.

    Raises:
        Damage: after the last packet that can be read.
    """
    reader = _SectionReader(interfaces)
    for chunk in chunks(file, 0):
        yield from reader.take(chunk)


class _SectionReader:
    """The state between two chunks: the section's byte order and its first interface's number."""

    def __init__(self, interfaces: list[Interface]) -> None:
        self._interfaces = interfaces
        self._order = "<"
        self._first = 0

    def take(self, chunk: Chunk) -> Iterator[Records]:
        """Yield the packets of the whole blocks in a chunk."""
        words = chunk.words(self._order)
        place, damage = 0, None
        places: list[int] = []
        while damage is None:
            place = _walk(words, place, places)
            if place + 3 > len(words):
                break
            if words[place] == SECTION:
                yield from self._packets(chunk, places)
                places = []
                # Even its length can be read only once its byte order is known.
                damage = self._begin_section(chunk, place)
                words = chunk.words(self._order)
            damage = damage or _misfit(words, place)
            following = place + (words[place + 1] >> 2)
            if damage or following > len(words):
                break
            if words[place] == _PACKET:
                places.append(place)
                place = following
                continue
            try:
                damage = self._describe(
                    words[place], chunk.bytes[place * 4 + 8 : following * 4 - 4]
                )
            except (struct.error, IndexError):
                damage = f"a block of type {words[place]} that contradicts itself"
            place = place if damage else following
        yield from self._packets(chunk, places)
        chunk.used = place * 4
        if damage or (chunk.last and chunk.used < chunk.end):
            kind = Unknown if damage == _TIMELESS else Damage
            raise kind(chunk.start + chunk.used, damage or "the file ends within a block")

    def _begin_section(self, chunk: Chunk, place: int) -> str | None:
        magic = chunk.bytes[place * 4 + 8 : place * 4 + 12]
        for order in "<>":
            if magic == struct.pack(f"{order}I", _BYTE_ORDER):
                self._order = order
                self._first = len(self._interfaces)
                return None
        return f"a section with the byte-order mark {magic.hex(' ')}"

    def _describe(self, kind: int, body: bytes) -> str | None:
        """Read a block that is no enhanced packet; return what is wrong with it, or None."""
        if kind == _INTERFACE:
            return self._describe_interface(body)
        if kind == _STATISTICS:
            number, _, _ = struct.unpack_from(f"{self._order}III", body)
            interface = self._interfaces[self._first + number]
            for code, value in _options(body[12:], self._order):
                if code == _RECEIVED:
                    (interface.received,) = struct.unpack(f"{self._order}Q", value)
                elif code == _DROPPED:
                    (interface.dropped,) = struct.unpack(f"{self._order}Q", value)
        elif kind == _SIMPLE:
            return _TIMELESS
        return None

    def _describe_interface(self, body: bytes) -> str | None:
        link, _, _ = struct.unpack_from(f"{self._order}HHI", body)
        interface = Interface(link)
        for code, value in _options(body[8:], self._order):
            if code == _NAME:
                interface.name = value.decode(errors="replace")
            elif code == _RESOLUTION:
                base, exponent = (2, value[0] & 0x7F) if value[0] & 0x80 else (10, value[0])
                if exponent > {2: 63, 10: 18}[base]:
                    return f"a clock of {base}^{exponent} ticks per second"
                interface.ticks = base**exponent
            elif code == _CHECKSUM:
                if value[0] not in _CHECKSUMS:
                    return f"an interface with a checksum (if_fcslen) of {value[0]}"
                interface.checksum = _CHECKSUMS[value[0]]
            elif code == _OFFSET:
                (interface.offset,) = struct.unpack(f"{self._order}q", value)
                if abs(interface.offset) > _FARTHEST:
                    return f"a clock that is {interface.offset:,} seconds off"
        self._interfaces.append(interface)
        return None

    def _packets(self, chunk: Chunk, places: list[int]) -> Iterator[Records]:
        """Yield the packet blocks at these places (in words), as far as they can be read."""
        if not places:
            return
        buffer = chunk.padded()
        words = np.frombuffer(buffer, f"{self._order}u4", count=len(buffer) // 4)
        halves = words.view(f"{self._order}u2")
        at = np.array(places, np.intp)
        block = words[at + 1].astype(np.int64)
        # An obsolete packet has the interface's number in half a word.
        number = np.where(words[at] == _PACKET, halves[2 * at + 4], words[at + 2])
        number = number.astype(np.int64) + self._first
        kept = words[at + 5].astype(np.int64)
        wrong = (kept > block - 32) | (block & 3 != 0) | (number >= len(self._interfaces))
        good = int(np.argmax(wrong)) if wrong.any() else len(at)
        link, checksum, time = np.zeros((3, len(at)), np.int64)
        ticks = (words[at + 3].astype(np.uint64) << np.uint64(32)) | words[at + 4]
        for n in np.unique(number[:good]):
            interface = self._interfaces[n]
            mine = np.flatnonzero(number[:good] == n)
            time[mine] = interface.nanoseconds(ticks[mine])
            link[mine], checksum[mine] = interface.link_type, interface.checksum
        damage: Damage | None = None
        if good < len(at):
            damage = Damage(4 * places[good], "a packet that does not fit its block")
        # The rare packets with options may have a checksum of another length.
        options = at * 4 + 28 + kept + (-kept & 3)
        for row in np.flatnonzero((at * 4 + block - options)[:good] >= 8).tolist():
            data = buffer[options[row] : at[row] * 4 + block[row] - 4].tobytes()
            for code, value in _options(data, self._order):
                if code == _FLAGS and len(value) == 4:
                    (flags,) = struct.unpack(f"{self._order}I", value)
                    checksum[row] = flags >> 5 & 0xF or checksum[row]
        strange = np.flatnonzero(~np.isin(link[:good], tuple(LINK_HEADERS)))
        if len(strange):
            good = int(strange[0])
            damage = unknown_link_type(4 * places[good], int(link[good]))
        length = np.maximum(np.maximum(words[at + 6], words[at + 5]) - checksum, 0)
        if good:
            begin = at[:good] * 4 + 28
            kept = np.minimum(kept, length)
            yield Records(link[:good], buffer, begin, time[:good], length[:good], kept[:good])
        if damage is not None:
            chunk.used = damage.place
            damage.place += chunk.start
            raise damage


def _walk(words: memoryview, place: int, places: list[int]) -> int:
    """Step over whole enhanced packet blocks, append their places (in words); return the end."""
    add = places.append
    end = len(words)
    last = end - 8
    while place <= last and words[place] == _ENHANCED:
        length = words[place + 1]
        following: int = place + (length >> 2)
        if not 32 <= length <= LONGEST or following > end or words[following - 1] != length:
            break
        add(place)
        place = following
    return place


def _misfit(words: memoryview, place: int) -> str | None:
    """Return what is wrong with a block's length, or None; a block cut off has no end to check."""
    length = words[place + 1]
    shortest = 32 if words[place] in (_ENHANCED, _PACKET) else 12
    if length & 3 or not shortest <= length <= LONGEST:
        return f"a block of {length:,} bytes"
    following = place + (length >> 2)
    if following <= len(words) and words[following - 1] != length:
        return f"a block whose two lengths differ ({length:,} and {words[following - 1]:,} bytes)"
    return None


def _options(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place + 4 <= len(data):
        code, length = struct.unpack_from(f"{order}HH", data, place)
        if code == 0:
            return
        yield code, data[place + 4 : place + 4 + length]
        place += 4 + length + (-length % 4)
