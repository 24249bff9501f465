"""The board: shared memory to which each device of a run writes its state.

The orchestrator makes the board and the agent passes its descriptor on. A device inherits the mapping
from the process that forks it, or maps the board with a descriptor received over a channel. Each device
writes to cache lines of its own, with plain stores of aligned words, so that a write costs some tens of
nanoseconds, wakes no process and needs no lock. A reader sees each word whole, but may see two words
from before and after an update.

Where no process reads, the memory is private to the run's nodes; a role writes all the same and need
not know.
"""

import mmap
import os
import struct
import time
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.errors import RunError
from testbed.nodes.shared_memory import memory_of_fixed_size

WORDS = 32
"""Number of 8-byte words in a line."""
_LINE = 8 * WORDS
_MAGIC = struct.unpack("=Q", b"testbed2")[0]
_HEADER, _OF_SERVER, _FIRST = 0, 1, 2
"""Numbers of lines: the header (magic number, devices, stamped), the server's, the first device's."""
CPU_PERIOD = 500_000_000
"""Nanoseconds between two readings of a device's processor time; each costs a system call."""
_ASKED, _WORST, _BINS = 2, 3, 4
"""Words of a device's line: seconds asked for in all, the latest wake-up, and the first bin."""
BINS = 24
"""Bins of a device's wake-ups by lateness; each is twice as wide as the one before."""
FIRST_BIN = 10_000
"""Nanoseconds of lateness below which a wake-up is in the first bin; the last begins at 42 s."""


class DeviceState(IntEnum):
    """A device's activity, as the device reports it."""

    STARTING = 0
    """The device does not exist yet, or training has not begun for it."""
    TRAINING = 1
    """It computes, or waits for its turn at the host's processors."""
    WAITING = 2
    """It waits for time to pass, for parameters or for room to send."""
    DONE = 3
    """It knows that training is over."""


class DeviceLine:
    """The line to which one device writes its state and its processor time."""

    __slots__ = ("_next_look", "_used", "_words")

    def __init__(self, words: memoryview) -> None:
        self._words = words
        self._next_look = self._used = 0

    @classmethod
    def unread(cls) -> "DeviceLine":
        """Make a line that is on no board."""
        return cls(_nowhere())

    def training(self) -> None:
        """Set the device's state to training, as a computation starts."""
        self._words[0] = 1  # State.TRAINING: an enum's lookup costs as much as the store

    def waiting(self) -> None:
        """Set the device's state to waiting: it computes nothing now."""
        self._words[0] = 2
        self.look()

    def done(self) -> None:
        """Set the device's state to done, as training is over."""
        self._words[0] = 3
        self._next_look = 0
        self.look()

    def woke(self, asked: float, late: float) -> None:
        """Count a wake-up ``late`` seconds after the end of a time of ``asked`` seconds."""
        nanoseconds = max(0, int(late * 1e9))
        words = self._words
        words[_ASKED] += int(asked * 1e9)
        words[_WORST] = max(words[_WORST], nanoseconds)
        words[_BINS + min((nanoseconds // FIRST_BIN).bit_length(), BINS - 1)] += 1

    def look(self) -> None:
        """Add the process's processor time to its predecessors', at most once per ``CPU_PERIOD``."""
        now = time.monotonic_ns()
        if now >= self._next_look:
            self._next_look = now + CPU_PERIOD
            before, self._used = self._used, time.process_time_ns()
            self._words[1] += self._used - before


class ServerLine:
    """The line to which the parameter server writes counters of its own work."""

    __slots__ = ("_words",)

    def __init__(self, words: memoryview) -> None:
        self._words = words

    @classmethod
    def unread(cls) -> "ServerLine":
        """Make a line that is on no board."""
        return cls(_nowhere())

    def queued(self, nanoseconds: int) -> None:
        """Count a push that the server took up ``nanoseconds`` after the kernel received it."""
        words = self._words
        words[0] += max(nanoseconds, 0)  # the host's clock may be set back
        words[1] += 1

    def applied(self, nanoseconds: int) -> None:
        """Count a push that took ``nanoseconds`` to apply."""
        words = self._words
        words[2] += nanoseconds
        words[3] += 1

    def sent(self, message_bytes: int, payload_bytes: int = 0) -> None:
        """Count a message handed over to be sent to a worker."""
        words = self._words
        words[4] += message_bytes
        words[5] += payload_bytes


class WakeUps(NamedTuple):
    """How late a device woke at the ends of its computations and waits.

    Attributes:
        counts: the wake-ups in each bin.
        asked: the sum of the times asked for, in seconds.
        worst: the greatest lateness, in seconds.
    """

    counts: list[int]
    asked: float
    worst: float


class Board:
    """The memory of one run.

    Attributes:
        devices: number of its lines for devices.
        stamped: True if somebody reads the servers' counters, for which messages are stamped.
        descriptor: for the processes that are to map it; None of a private board.
    """

    def __init__(
        self, memory: mmap.mmap, devices: int, descriptor: int | None, *, stamped: bool = False
    ) -> None:
        self.devices = devices
        self.stamped = stamped
        self.descriptor = descriptor
        self._memory = memory

    @classmethod
    def create(cls, devices: int, *, stamped: bool = True) -> "Board":
        """Make a board that other processes can map; the caller must close its descriptor."""
        size = _size(devices)
        descriptor = memory_of_fixed_size("testbed-board", size)
        memory = mmap.mmap(descriptor, size)
        memory[:24] = struct.pack("=QQQ", _MAGIC, devices, stamped)
        return cls(memory, devices, descriptor, stamped=stamped)

    @classmethod
    def open(cls, descriptor: int) -> "Board":
        """Map a board whose descriptor was inherited or received.

        Raises:
            RunError: the descriptor is no board's, or the board is of another version.
        """
        size = os.fstat(descriptor).st_size
        if size >= _LINE:
            memory = mmap.mmap(descriptor, size)
            magic, devices, stamped = struct.unpack("=QQQ", memory[:24])
            if magic == _MAGIC and size == _size(devices):
                return cls(memory, devices, descriptor, stamped=bool(stamped))
        raise RunError(
            f"descriptor {descriptor} is no board of this version of the testbed: the processes of a "
            "run must be of one version"
        )

    @classmethod
    def private(cls, devices: int) -> "Board":
        """Make a board that only this process and its children can see."""
        return cls(mmap.mmap(-1, _size(devices)), devices, None)

    @property
    def shared(self) -> bool:
        """True if other processes than this one and its children can read it."""
        return self.descriptor is not None

    def device(self, number: int) -> DeviceLine:
        """Return a device's line."""
        if not 0 <= number < self.devices:
            raise IndexError(f"device {number} of {self.devices}")
        return DeviceLine(self._line(_FIRST + number))

    def server(self, further: int | None = None) -> ServerLine:
        """Return the line of a server's counters; as a device it has another line.

        Args:
            further: the line of a further server's counters, of ``further_lines``; None: the first's.
        """
        return ServerLine(self._line(_OF_SERVER if further is None else _FIRST + further))

    def _line(self, number: int) -> memoryview:
        words = memoryview(self._memory).cast("Q")
        return words[number * WORDS : (number + 1) * WORDS]

    # -- reading

    def states(self) -> npt.NDArray[np.uint64]:
        """Return the ``DeviceState`` of every device, shape (devices,)."""
        return self._words()[_FIRST:, 0].copy()

    def processor_seconds(self) -> npt.NDArray[np.float64]:
        """Return every device's processor time as it last wrote it, in seconds, shape (devices,)."""
        return self._words()[_FIRST:, 1] / 1e9

    def wake_ups(self, workers: int) -> Iterator[WakeUps]:
        """Yield the wake-ups of each worker or peer that had any."""
        # Lines after theirs may be a server's, whose counters are where a device has its bins.
        for line in self._words()[_FIRST : _FIRST + workers]:
            counts = line[_BINS : _BINS + BINS]
            if counts.any():
                yield WakeUps(counts.tolist(), int(line[_ASKED]) / 1e9, int(line[_WORST]) / 1e9)

    def of_server(self, further: Sequence[int] = ()) -> dict[str, int]:
        """Return the servers' counters: ``queue`` and ``apply`` in nanoseconds, pushes, bytes sent.

        Args:
            further: the lines of further servers' counters, which are added.
        """
        names = ("queue", "queued", "apply", "applied", "sent_message_bytes", "sent_payload_bytes")
        words = self._words()[[_OF_SERVER, *(_FIRST + line for line in further)]].sum(axis=0)
        return dict(zip(names, words.tolist(), strict=False))

    def _words(self) -> npt.NDArray[np.uint64]:
        return np.frombuffer(self._memory, np.uint64).reshape(-1, WORDS)

    def close(self) -> None:
        """Close the descriptor; the memory is freed when the last process unmaps it."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def lines_of(workers: int, servers: int = 1) -> int:
    """Return the number of a run's device lines; those of workers or peers come first, by number.

    The last lines are the counters of the servers after the first; see ``further_lines``.
    """
    return workers + 1 + servers + (servers - 1)


def further_lines(workers: int, servers: int) -> range:
    """Return the lines of the counters of the servers after the first, in order."""
    return range(workers + 1 + servers, lines_of(workers, servers))


def evaluator_line(workers: int) -> int:
    """Return the number of the evaluator's line."""
    return workers


def hub_line(workers: int, index: int = 0) -> int:
    """Return the number of the line of a server or, among peers, of their coordinator."""
    return workers + 1 + index


def _nowhere() -> memoryview:
    return memoryview(bytearray(_LINE)).cast("Q")


def _size(devices: int) -> int:
    return _LINE * (_FIRST + devices)
