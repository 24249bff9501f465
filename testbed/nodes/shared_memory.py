"""Memory that forked processes share, in large pages where the kernel has them.

A process that is forked has no page of it in its own table until it touches one, and each costs time:
the 1,700 ordinary pages with which a device computes 2.8 ms, where a gradient of AdaComp's CNN takes
4.5. Of large pages it touches four.
"""

import ctypes
import fcntl
import mmap
import os

from testbed.nodes import linux

LARGE_PAGE = 2 << 20
"""Bytes of a large page, on processors whose ordinary pages have 4 KiB."""


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
    reserved = linux.map_memory(None, whole + LARGE_PAGE, 0, mmap.MAP_PRIVATE | linux.MAP_NORESERVE)
    start = -(-reserved // LARGE_PAGE) * LARGE_PAGE
    linux.map_memory(
        start, whole, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | linux.MAP_FIXED
    )
    return memoryview((ctypes.c_ubyte * whole).from_address(start)).cast("B")[:size]


def in_large_pages(memory: memoryview) -> bool:
    """Move what ``shared_memory`` returned into large pages, content and all.

    Returns:
        False where the kernel has none to give, and ordinary ones stay; only the time differs.
    """
    whole = -(-len(memory) // LARGE_PAGE) * LARGE_PAGE
    start = ctypes.addressof(ctypes.c_ubyte.from_buffer(memory))
    return linux.collapse(start, whole)


def memory_of_fixed_size(name: str, size: int) -> int:
    """Make a memory file for several processes, and return its descriptor.

    No process can cut it short: that would end all that have it mapped, by SIGBUS.
    """
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor
