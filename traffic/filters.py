"""Kernel packet filters (classic BPF): which packets a capture keeps, and how many bytes of each.

A filter is a list of instructions that the kernel runs on every packet before it copies anything.
``excluding_hosts`` makes its instructions itself, because a run needs it even without libpcap;
expressions in tcpdump's language are compiled by libpcap.
"""

import ctypes
import ipaddress
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from traffic import TrafficError

_LOAD_HALF = 0x28  # ldh [k]
_LOAD_WORD = 0x20  # ld [k]
_JUMP_IF_EQUAL = 0x15  # jeq #k, true, false
_RETURN = 0x06  # ret #k: keep k bytes; 0 drops the packet

_ETHERTYPE = 12
_ETHERTYPE_IPV4 = 0x0800
_IPV4_SOURCE = 26
_IPV4_DESTINATION = 30
_SO_ATTACH_FILTER = 26
_SO_LOCK_FILTER = 44


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: operation, jumps if true and if false, operand."""

    code: int
    if_true: int
    if_false: int
    k: int

    def pack(self) -> bytes:
        """Return the instruction as ``struct sock_filter``."""
        return struct.pack("=HBBI", self.code, self.if_true, self.if_false, self.k)


def everything(snap_length: int) -> list[Instruction]:
    """Return a filter that keeps the first ``snap_length`` bytes of every packet."""
    return [Instruction(_RETURN, 0, 0, snap_length)]


def excluding_hosts(addresses: Sequence[str], snap_length: int) -> list[Instruction]:
    """Return a filter that keeps every packet except IPv4 packets from or to one of these hosts.

    Raises:
        TrafficError: not an IPv4 address, or more than 100 (a jump of classic BPF is 8 bits wide).
    """
    if len(addresses) > 100:
        raise TrafficError(
            f"{len(addresses)} hosts are more than the 100 that a filter can leave out: name fewer"
        )
    try:
        hosts = [int(ipaddress.IPv4Address(address)) for address in addresses]
    except ValueError as error:
        raise TrafficError(f"a host to leave out is not an IPv4 address: {error}") from error
    comparisons = [
        instruction
        for place in (_IPV4_SOURCE, _IPV4_DESTINATION)
        for instruction in (
            Instruction(_LOAD_WORD, 0, 0, place),
            *(Instruction(_JUMP_IF_EQUAL, 0, 0, host) for host in hosts),
        )
    ]
    program = [
        Instruction(_LOAD_HALF, 0, 0, _ETHERTYPE),
        Instruction(_JUMP_IF_EQUAL, 0, len(comparisons), _ETHERTYPE_IPV4),
        *comparisons,
        Instruction(_RETURN, 0, 0, snap_length),
        Instruction(_RETURN, 0, 0, 0),
    ]
    drop = len(program) - 1
    return [
        Instruction(i.code, drop - at - 1, 0, i.k) if i.code == _JUMP_IF_EQUAL and at > 1 else i
        for at, i in enumerate(program)
    ]


def compiled(expression: str, snap_length: int) -> list[Instruction]:
    """Compile an expression in tcpdump's language for Ethernet, e.g. ``tcp port 80``.

    Raises:
        TrafficError: libpcap is not installed, or refuses the expression.
    """
    library = _libpcap()
    handle = library.pcap_open_dead(1, snap_length)  # 1: Ethernet
    program = _FilterProgram()
    try:
        text = os.fsencode(expression)
        if library.pcap_compile(handle, ctypes.byref(program), text, 1, 0xFFFFFFFF):
            reason = ctypes.string_at(library.pcap_geterr(handle)).decode(errors="replace")
            raise TrafficError(f"the filter '{expression}' is not valid: {reason}")
        raw = ctypes.string_at(program.instructions, 8 * program.length)
        library.pcap_freecode(ctypes.byref(program))
    finally:
        library.pcap_close(handle)
    return [Instruction(*fields) for fields in struct.iter_unpack("=HBBI", raw)]


def attach(packets: socket.socket, program: Sequence[Instruction]) -> None:
    """Attach a filter to a packet socket, for good.

    Raises:
        TrafficError: the kernel refuses it, because it is too long.
    """
    code = ctypes.create_string_buffer(b"".join(instruction.pack() for instruction in program))
    filter_program = struct.pack("HP", len(program), ctypes.addressof(code))
    try:
        packets.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_program)
    except OSError as error:
        raise TrafficError(
            f"the kernel refuses a filter of {len(program):,} instructions ({error.strerror}): use a "
            "simpler one"
        ) from error
    packets.setsockopt(socket.SOL_SOCKET, _SO_LOCK_FILTER, 1)


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint), ("instructions", ctypes.c_void_p))


def _libpcap() -> ctypes.CDLL:
    for name in ("libpcap.so.0.8", "libpcap.so.1", "libpcap.so"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.pcap_open_dead.restype = ctypes.c_void_p
        library.pcap_geterr.restype = ctypes.c_void_p
        library.pcap_geterr.argtypes = [ctypes.c_void_p]
        library.pcap_close.argtypes = [ctypes.c_void_p]
        library.pcap_freecode.argtypes = [ctypes.c_void_p]
        library.pcap_compile.argtypes = [
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_uint32,
        ]
        return library
    raise TrafficError(
        "libpcap, which compiles filter expressions, is not installed: install it (apt-get install "
        "libpcap0.8), or capture without an expression"
    )
