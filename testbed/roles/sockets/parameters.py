"""The parameters that have come to a worker, until it computes at them."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from testbed.encoding_choice import EncodingChoice, Pulls
from testbed.roles.sockets.server_links import Arriving
from testbed.roles.transport.greeting import Greeted
from testbed.training.slices import Slice
from testbed.updates import FloatVector, SparseUpdate, as_bytes
from testbed.wire import WireError
from testbed.wire.encodings import DENSE, Codec
from testbed.wire.frames import Head

Take: TypeAlias = Callable[[int, Sequence[memoryview]], None]
"""Receives a body that was announced over a conversation into places; ``ServerLinks.take``."""


class ReceivedParameters(Arriving):
    """The parameters of all servers, as far as they have come.

    Attributes:
        only_newest: True if only the newest version of each server is ever needed.
        dealt: by version of the first server, the number of the mini-batch in the run's stream that
            came with it; 0 if there is no stream.
    """

    def __init__(self, cut: Sequence[Slice], longest: Sequence[int]) -> None:
        """Start with no parameters.

        Args:
            longest: the bytes of the longest body that brings each.
        """
        self._cut = list(cut)
        self.only_newest = True
        self.longest = list(longest)
        self.whole = [4 * one.size for one in cut]
        self.dealt: dict[int, int] = {}

    @abstractmethod
    def has(self, conversation: int, version: int) -> bool:
        """Return True if a version has come and was not forgotten."""

    @abstractmethod
    def forget_before(self, conversation: int, version: int) -> None:
        """Forget what is older than a version."""

    @abstractmethod
    def use(self, bases: Sequence[int]) -> None:
        """Forget what is older than versions, by server, and go over to what came of them again."""

    @abstractmethod
    def put(self, bases: Sequence[int], into: FloatVector, take: Take) -> None:
        """Write the parameters of some versions, by server, to their places, and ``use`` them.

        Args:
            into: float32, (|Θ|,).
            take: receives what is not here yet.

        Raises:
            ConnectionError: they are lost with the connection over which they were to come.
        """

    def is_whole(self, conversation: int, head: Head) -> bool:
        """Return True if a body is a server's whole slice as float32 values."""
        return head.encoding == DENSE and head.length == 4 * self._cut[conversation].size

    def refused(self, conversation: int, head: Head) -> WireError:
        """Return the error for a body that is not a server's whole slice, and should be."""
        return WireError(
            f"parameters of {head.length} bytes in encoding {head.encoding}, expected "
            f"{4 * self._cut[conversation].size} in encoding {DENSE}"
        )


class ParametersInTurn(ReceivedParameters):
    """Whole answers of the only server, which are received straight into the model's memory.

    They stay in the kernel until the worker has its turn at computing.
    """

    def __init__(self, only: Slice) -> None:
        super().__init__([only], [4 * only.size])

    def opened(self, conversation: int, greeted: Greeted) -> None:
        """Do nothing: there is no memory of an earlier session."""

    def place(self, conversation: int, head: Head) -> None:
        """Leave the body where it is.

        Raises:
            WireError: it is no answer of this run.
        """
        if not self.is_whole(conversation, head):
            raise self.refused(conversation, head)
        self.dealt = {head.number: head.count}

    def came(self, conversation: int, head: Head) -> bool:
        """Is never called."""
        raise NotImplementedError

    def has(self, conversation: int, version: int) -> bool:
        return version in self.dealt

    def forget_before(self, conversation: int, version: int) -> None:
        """Do nothing: no older one is here."""

    def use(self, bases: Sequence[int]) -> None:
        """Do nothing: no other one is here."""

    def put(self, bases: Sequence[int], into: FloatVector, take: Take) -> None:
        take(0, [as_bytes(into)])


class KeptParameters(ReceivedParameters):
    """Parameters that are kept in memory of their own, by server and version."""

    def __init__(
        self, cut: Sequence[Slice], pulls: Pulls, *, only_newest: bool, overlaps: bool = False
    ) -> None:
        """Start with no parameters.

        Args:
            pulls: what answers bring; ``changed``: what has changed since the answer before.
            overlaps: True if the worker computes at a version again until it has a later one: then one
                that comes twice is what came first (``testbed.engine.overlapping_worker``).
        """
        codecs = [Codec(EncodingChoice(), one.layout.sizes) for one in cut]
        self._changes = codecs if pulls == "changed" else None
        super().__init__(
            cut,
            [one.longest for one in codecs] if self._changes else [4 * one.size for one in cut],
        )
        self.only_newest = only_newest
        self._overlaps = overlaps
        count = len(self._cut)
        self._there: list[dict[int, FloatVector]] = [{} for _ in range(count)]
        # The version used last, and what came again of one that is still to be used.
        self._used = [-1] * count
        self._again: list[list[FloatVector]] = [[] for _ in range(count)]
        # What changes refer to.
        self._last: list[FloatVector | None] = [None] * count
        self._filling: list[FloatVector | None] = [None] * count
        self._body = [memoryview(b"")] * count
        self._spare: list[list[FloatVector]] = [[] for _ in range(count)]

    def opened(self, conversation: int, greeted: Greeted) -> None:
        self._forget(conversation, list(self._there[conversation]))
        self._used[conversation] = -1
        self._again[conversation].clear()
        self._last[conversation] = None
        self.whole[conversation] = 4 * self._cut[conversation].size
        if greeted.base is not None:
            self._take_in(conversation, -1, greeted.base)

    def place(self, conversation: int, head: Head) -> Sequence[memoryview]:
        if self.is_whole(conversation, head):
            own = self._memory(conversation)
            self._filling[conversation] = own
            return [as_bytes(own)]
        if self._changes is None or self._last[conversation] is None:
            raise self.refused(conversation, head)
        self._filling[conversation] = None
        self._body[conversation] = memoryview(bytearray(head.length))
        return [self._body[conversation]]

    def came(self, conversation: int, head: Head) -> bool:
        own = self._filling[conversation]
        self._filling[conversation] = None
        if own is None:
            own = self._changed(conversation, head)
        self._take_in(conversation, head.number, own)
        if conversation == 0:
            self.dealt = {v: self.dealt[v] for v in self._there[0] if v in self.dealt}
            self.dealt[head.number] = head.count
        return True

    def _changed(self, conversation: int, head: Head) -> FloatVector:
        """Return the parameters before, with the changes that have come."""
        assert self._changes is not None
        last = self._last[conversation]
        assert last is not None
        changes = self._changes[conversation].decode(head.encoding, self._body[conversation])
        self._body[conversation] = memoryview(b"")
        if not isinstance(changes, SparseUpdate):
            raise WireError("changed parameters that are neither whole nor changes")
        own = last
        if not self.only_newest:
            own = self._memory(conversation)
            np.copyto(own, last)
        own[changes.indices] = changes.values
        return own

    def _take_in(self, conversation: int, version: int, own: FloatVector) -> None:
        there = self._there[conversation]
        is_used = self.only_newest or version == self._used[conversation]
        if version not in there or (is_used and not self._overlaps):
            outdated = list(there) if self.only_newest else [version] * (version in there)
            before = [there.pop(one) for one in outdated]
            self._spare[conversation] += [one for one in before if one is not own]
            there[version] = own
        elif not self._overlaps:
            self._again[conversation].append(own)
        if self._changes:
            self._last[conversation] = own
            self.whole[conversation] = 0

    def _memory(self, conversation: int) -> FloatVector:
        spare = self._spare[conversation]
        return spare.pop() if spare else np.empty(self._cut[conversation].size, np.float32)

    def has(self, conversation: int, version: int) -> bool:
        return version in self._there[conversation]

    def forget_before(self, conversation: int, version: int) -> None:
        self._forget(conversation, [v for v in self._there[conversation] if v < version])

    def _forget(self, conversation: int, versions: Sequence[int]) -> None:
        there = self._there[conversation]
        self._spare[conversation] += [there.pop(version) for version in versions]

    def put(self, bases: Sequence[int], into: FloatVector, take: Take) -> None:
        for one, base, there in zip(self._cut, bases, self._there, strict=True):
            one.put(there[base], into)
        self.use(bases)

    def use(self, bases: Sequence[int]) -> None:
        for conversation, base in enumerate(bases):
            self.forget_before(conversation, base)
            self._used[conversation] = base
            for again in self._again[conversation]:
                self._there[conversation][base] = again
            self._again[conversation].clear()
