"""The board: shared memory on which the devices of a run write how they stand.

The orchestrator makes it, the agent hands its descriptor on, and whatever becomes a device maps it: by
being forked from a process that has, or with the descriptor received over a channel. A device writes to
a cache line of its own and nobody else does, with plain stores of aligned words, so that telling costs
it some tens of nanoseconds, wakes nobody and needs no lock. Who reads sees each word whole and may see
two of them from before and after an update.

Where nobody reads, the memory is private to the run's nodes: a role writes all the same, and needs not
know.
"""

import mmap
import os
import struct
import time
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from testbed.errors import RunError

WORDS = 8
"""Words of 8 bytes in a line."""
_LINE = 8 * WORDS
_MAGIC = struct.unpack("=Q", b"testbed1")[0]
_HEADER, _OF_SERVER, _FIRST = 0, 1, 2
"""Lines: what this is and how many devices it has; the server's ledger; the devices'."""
CPU_PERIOD = 500_000_000
"""Nanoseconds between two looks at a device's own processor time, which costs a system call."""


class State(IntEnum):
    """What a device does, as it says itself."""

    STARTING = 0
    """It is not there yet, or training has not begun for it."""
    TRAINING = 1
    """It computes, or waits for its turn at the host's processors."""
    WAITING = 2
    """It waits for time to pass, for parameters or for room to send."""
    DONE = 3
    """It has been told that training is over."""


class DeviceLine:
    """One device's line, for the device to write: state, steps, processor time, messages sent."""

    __slots__ = ("_next_look", "_words")

    def __init__(self, words: memoryview) -> None:
        self._words = words
        self._next_look = 0

    @classmethod
    def unread(cls) -> "DeviceLine":
        """One that is on no board."""
        return cls(_nowhere())

    def training(self) -> None:
        """A computation begins."""
        self._words[0] = 1  # State.TRAINING: an enum's lookup costs as much as the store

    def waiting(self) -> None:
        """Nothing is to be computed."""
        self._words[0] = 2
        self.look()

    def done(self) -> None:
        """Training is over."""
        self._words[0] = 3
        self._next_look = 0
        self.look()

    def look(self) -> None:
        """Write the process's processor time down, if that was not done just now."""
        now = time.monotonic_ns()
        if now >= self._next_look:
            self._next_look = now + CPU_PERIOD
            self._words[1] = time.process_time_ns()


class ServerLine:
    """What the parameter server writes of its own work."""

    __slots__ = ("_words",)

    def __init__(self, words: memoryview) -> None:
        self._words = words

    @classmethod
    def unread(cls) -> "ServerLine":
        """One that is on no board."""
        return cls(_nowhere())

    def queued(self, nanoseconds: int) -> None:
        """A push was taken up so long after the kernel had it."""
        words = self._words
        words[0] += max(nanoseconds, 0)  # the host's clock may be set back
        words[1] += 1

    def applied(self, nanoseconds: int) -> None:
        """Applying a push took so long."""
        words = self._words
        words[2] += nanoseconds
        words[3] += 1

    def sent(self, message_bytes: int, payload_bytes: int = 0) -> None:
        """A message was handed over to be sent to a worker."""
        words = self._words
        words[4] += message_bytes
        words[5] += payload_bytes


class Board:
    """The memory of one run.

    Attributes:
        devices: how many lines for devices it has.
        descriptor: to hand to those who shall map it; None of a private one.
    """

    def __init__(self, memory: mmap.mmap, devices: int, descriptor: int | None) -> None:
        self.devices = devices
        self.descriptor = descriptor
        self._memory = memory

    @classmethod
    def create(cls, devices: int) -> "Board":
        """Make one that other processes can be given; the descriptor is the caller's to close."""
        descriptor = os.memfd_create("testbed-board", os.MFD_CLOEXEC)
        size = _size(devices)
        os.ftruncate(descriptor, size)
        memory = mmap.mmap(descriptor, size)
        memory[:16] = struct.pack("=QQ", _MAGIC, devices)
        return cls(memory, devices, descriptor)

    @classmethod
    def open(cls, descriptor: int) -> "Board":
        """Map one whose descriptor was inherited or received.

        Raises:
            RunError: it is none, or of another version.
        """
        size = os.fstat(descriptor).st_size
        if size >= _LINE:
            memory = mmap.mmap(descriptor, size)
            magic, devices = struct.unpack("=QQ", memory[:16])
            if magic == _MAGIC and size == _size(devices):
                return cls(memory, devices, descriptor)
        raise RunError(
            f"descriptor {descriptor} is no board of this version of the testbed: the processes of a "
            "run must be of one version"
        )

    @classmethod
    def private(cls, devices: int) -> "Board":
        """One that only this process and its children can see."""
        return cls(mmap.mmap(-1, _size(devices)), devices, None)

    @property
    def shared(self) -> bool:
        """Whether anybody outside may read it."""
        return self.descriptor is not None

    def device(self, number: int) -> DeviceLine:
        """A device's line."""
        if not 0 <= number < self.devices:
            raise IndexError(f"device {number} of {self.devices}")
        return DeviceLine(self._line(_FIRST + number))

    def server(self) -> ServerLine:
        """The server's line, beside the one that it has as a device."""
        return ServerLine(self._line(_OF_SERVER))

    def _line(self, number: int) -> memoryview:
        words = memoryview(self._memory).cast("Q")
        return words[number * WORDS : (number + 1) * WORDS]

    # -- reading

    def states(self) -> npt.NDArray[np.uint64]:
        """The ``State`` of every device, shape (devices,)."""
        return self._words()[_FIRST:, 0].copy()

    def processor_seconds(self) -> npt.NDArray[np.float64]:
        """Processor time of every device, as it wrote it down last, shape (devices,)."""
        return self._words()[_FIRST:, 1] / 1e9

    def of_server(self) -> dict[str, int]:
        """The server's line: ``queue`` and ``apply`` in nanoseconds, with how many there were."""
        names = ("queue", "queued", "apply", "applied", "sent_message_bytes", "sent_payload_bytes")
        return dict(zip(names, self._words()[_OF_SERVER].tolist(), strict=False))

    def _words(self) -> npt.NDArray[np.uint64]:
        return np.frombuffer(self._memory, np.uint64).reshape(-1, WORDS)

    def close(self) -> None:
        """Close the descriptor; the memory goes when nobody looks at it any more."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def lines_of(workers: int) -> int:
    """How many lines a run with so many workers or peers has; theirs come first, by their numbers."""
    return workers + 2


def evaluator_line(workers: int) -> int:
    """The evaluator's line."""
    return workers


def hub_line(workers: int) -> int:
    """The line of the server or, among peers, of their coordinator."""
    return workers + 1


def _nowhere() -> memoryview:
    return memoryview(bytearray(_LINE)).cast("Q")


def _size(devices: int) -> int:
    return _LINE * (_FIRST + devices)
