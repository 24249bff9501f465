"""Memory that forked processes share, in large pages where the kernel has them.

A process that is forked has no page of it in its own table until it touches one, and each costs about a
microsecond: of the 7 MB with which a device computes, more than a gradient of the paper's CNN takes
itself. Of large pages it touches four.
"""

import ctypes
import mmap
import os

LARGE_PAGE = 2 << 20
"""Bytes of a large page, on processors whose ordinary pages have 4 KiB."""
_MADV_COLLAPSE = 25  # since Linux 6.1; needs no setting of the host
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long),
)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def _map(start: int | None, size: int, protection: int, flags: int) -> int:
    found: int | None = _libc.mmap(start, size, protection, flags | mmap.MAP_ANONYMOUS, -1, 0)
    if found is None or found == ctypes.c_void_p(-1).value:
        number = ctypes.get_errno()
        raise OSError(number, f"mmap of {size} bytes: {os.strerror(number)}")
    return found


def shared_memory(size: int) -> memoryview:
    """Return memory that this process shares with those that it forks from now on.

    Args:
        size: in bytes.

    Returns:
        zeros, which begin at a multiple of a large page; the memory stays until all have ended.

    Raises:
        OSError: the host has none left.
    """
    whole = -(-size // LARGE_PAGE) * LARGE_PAGE
    # mmap takes the lowest place that is free: what is reserved holds one that is aligned.
    reserved = _map(None, whole + LARGE_PAGE, 0, mmap.MAP_PRIVATE | _MAP_NORESERVE)
    start = -(-reserved // LARGE_PAGE) * LARGE_PAGE
    _map(start, whole, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _MAP_FIXED)
    return memoryview((ctypes.c_ubyte * whole).from_address(start)).cast("B")[:size]


def in_large_pages(memory: memoryview) -> bool:
    """Move what ``shared_memory`` returned into large pages, content and all.

    Returns:
        False where the kernel has none to give, and ordinary ones stay; only the time differs.
    """
    whole = -(-len(memory) // LARGE_PAGE) * LARGE_PAGE
    start = ctypes.addressof(ctypes.c_ubyte.from_buffer(memory))
    done: int = _libc.madvise(start, whole, _MADV_COLLAPSE)
    return done == 0
