"""The queue of snapshots for the evaluator: its order, its limits, and its errors without room."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.roles.evaluation import snapshots
from testbed.roles.evaluation.snapshots import (
    IN_MEMORY,
    NoRoomError,
    SnapshotQueue,
    UnreadableError,
)

SIZE = 5000


def snapshot(version: int) -> memoryview:
    return memoryview(bytes([version % 251]) * SIZE)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "spill", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def test_order_is_kept_and_the_file_is_no_longer_than_what_waits(file: int) -> None:
    queue = SnapshotQueue(SIZE, file)
    taken, longest = [], 0
    for version in range(500):
        queue.put(version, snapshot(version))
        if version >= 100:  # from here on, one is taken for each one put
            taken.append(queue.get())
        longest = max(longest, os.fstat(file).st_size)
    assert longest <= (101 - IN_MEMORY) * SIZE
    assert [version for version, _ in queue.all()] == list(range(400, 500))
    while queue:
        taken.append(queue.get())
    assert taken == [(version, bytes(snapshot(version))) for version in range(500)]
    assert os.fstat(file).st_size == 0
    with pytest.raises(IndexError):
        queue.get()


def test_what_another_process_left_in_the_file_is_removed(file: int) -> None:
    os.write(file, bytes(10 * SIZE))
    SnapshotQueue(SIZE, file)
    assert os.fstat(file).st_size == 0


def test_room_is_left_to_the_rest_of_the_run(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "ROOM_LEFT", 1 << 60)
    queue = SnapshotQueue(SIZE, file)
    for version in range(IN_MEMORY):
        queue.put(version, snapshot(version))
    with pytest.raises(NoRoomError, match=r"32 wait .* no room for more: [\d,]+ MB are free"):
        queue.put(IN_MEMORY, snapshot(IN_MEMORY))
    assert len(queue) == IN_MEMORY
    assert not queue.crowded
    queue.put(99, snapshot(99), always=True)
    assert queue.crowded
    assert queue.get()[0] == 0
    assert not queue.crowded
    assert [version for version, _ in queue.all()] == [*range(1, IN_MEMORY), 99]


def test_a_write_that_fails_half_way_loses_nothing_else(file: int) -> None:
    queue = SnapshotQueue(SIZE, file)
    for version in range(IN_MEMORY + 2):
        queue.put(version, snapshot(version))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python ignores SIGXFSZ, so that the write fails as it does on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * SIZE + SIZE // 2, hard))
    try:
        with pytest.raises(NoRoomError, match="File too large"):
            queue.put(50, snapshot(50))
        assert os.fstat(file).st_size == 2 * SIZE
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    queue.put(51, snapshot(51))
    read = [queue.get() for _ in range(len(queue))]
    assert read == [(v, bytes(snapshot(v))) for v in (*range(IN_MEMORY + 2), 51)]


def test_a_snapshot_that_cannot_be_read_is_named_and_removed(file: int) -> None:
    queue = SnapshotQueue(SIZE, file)
    for version in range(IN_MEMORY + 2):
        queue.put(version, snapshot(version))
    os.ftruncate(file, SIZE + 100)
    assert [queue.get()[0] for _ in range(IN_MEMORY + 1)] == list(range(IN_MEMORY + 1))
    with pytest.raises(UnreadableError, match="ends 4,900 bytes too early") as raised:
        queue.get()
    assert raised.value.version == IN_MEMORY + 1
    assert not queue


def test_a_queue_that_checkpoints_hold_has_a_limit(
    file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "LIMIT", 50 * SIZE)
    queue = SnapshotQueue(SIZE, file, limited=True)
    for version in range(50):
        queue.put(version, snapshot(version))
    with pytest.raises(NoRoomError, match="50 wait for the evaluator, the most"):
        queue.put(50, snapshot(50))
    queue.put(51, snapshot(51), always=True)
    assert queue.crowded
    assert len(queue) == 51


def test_without_a_file_there_is_only_memory() -> None:
    queue = SnapshotQueue(SIZE)
    for version in range(IN_MEMORY):
        queue.put(version, snapshot(version))
    with pytest.raises(NoRoomError, match="memory is to hold no more"):
        queue.put(IN_MEMORY, snapshot(IN_MEMORY))
