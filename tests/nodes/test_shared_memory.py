"""Memory that forked processes share."""

import ctypes
import os
from pathlib import Path

import pytest

from testbed.nodes.shared_memory import (
    LARGE_PAGE,
    in_large_pages,
    memory_of_fixed_size,
    shared_memory,
)


def address(memory: memoryview) -> int:
    return ctypes.addressof(ctypes.c_ubyte.from_buffer(memory))


def in_a_child(memory: memoryview, place: int) -> int:
    """Have a child write 9 at a place; return what it read there first."""
    child = os.fork()
    if not child:
        before = memory[place]
        memory[place] = 9
        os._exit(before)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("size", [1, 4096, LARGE_PAGE, LARGE_PAGE + 1, 3 * LARGE_PAGE - 5])
def test_a_child_and_its_parent_see_what_the_other_writes(size: int) -> None:
    memory = shared_memory(size)
    assert len(memory) == size
    assert address(memory) % LARGE_PAGE == 0
    assert not any(memory[:: max(1, size // 100)])
    memory[size - 1] = 7
    assert in_a_child(memory, size - 1) == 7
    assert memory[size - 1] == 9


def test_its_content_stays_where_it_moves_into_large_pages() -> None:
    memory, other = shared_memory(LARGE_PAGE + 100), shared_memory(10)
    content = bytes(range(251)) * ((LARGE_PAGE + 100) // 251 + 1)
    memory[:] = content[: len(memory)]
    other[:] = b"0123456789"
    moved = in_large_pages(memory)
    assert bytes(memory) == content[: len(memory)]
    assert bytes(other) == b"0123456789"
    assert in_a_child(memory, 0) == 0
    assert memory[0] == 9
    if not moved:
        pytest.skip("this kernel has no large pages to give")
    begin = f"{address(memory):x}-"
    _, found = Path("/proc/self/smaps").read_text().split(f"\n{begin}")
    assert "ShmemPmdMapped:     4096 kB" in found.split("VmFlags")[0]


def test_memory_that_the_host_does_not_have_is_an_error() -> None:
    with pytest.raises(OSError, match="mmap of"):
        shared_memory(1 << 60)


def test_memory_of_a_fixed_size_is_not_cut_short_by_who_holds_it() -> None:
    descriptor = memory_of_fixed_size("test", 100)
    try:
        for size in (0, 50, 1 << 30):
            with pytest.raises(PermissionError):
                os.ftruncate(descriptor, size)
        assert os.fstat(descriptor).st_size == os.pwrite(descriptor, bytes(100), 0) == 100
    finally:
        os.close(descriptor)
