"""An encoding of a user's own, and the codec that makes messages of it.

The class is made for the tensors that go to one server, once in every process that encodes or decodes:

    class Ternary:
        lossy = True                                # decode(encode(update)) may be another update

        def __init__(self, sizes, **options): ...   # the sizes of the tensors, in order
        def longest(self): ...                      # the most bytes that a body can have
        def encode(self, update): ...               # bytes
        def decode(self, body): ...                 # an update

It keeps nothing from call to call, and ends with the same bytes for the same update: emulation,
simulation and a resumed run would otherwise differ.
"""

from collections.abc import Sequence
from typing import Any, Protocol, cast

from testbed.encoding_choice import EncodingChoice
from testbed.errors import TestbedError
from testbed.plugins.names import find, place_of, said
from testbed.updates import SparseUpdate, Update, checked
from testbed.wire import WireError
from testbed.wire.encodings import OWN, Codec, UpdateCodec

ENTRY_POINTS = "testbed.encodings"


class EncodeError(TestbedError):
    """A user's encoding has refused an update."""


class Encoding(Protocol):
    """The methods of a class of one's own; ``lossy`` may be left out, and is then True."""

    lossy: bool

    def longest(self) -> int:
        """Return the greatest number of bytes that a body can have; longer ones are refused."""
        ...

    def encode(self, update: Update) -> bytes:
        """Return the body of an update, dense or sparse, or raise if it is for the other kind."""
        ...

    def decode(self, body: memoryview) -> Update:
        """Read what ``encode`` wrote, or raise: the body comes from the network."""
        ...


class OwnCodec(UpdateCodec):
    """The codec of an encoding of a user's own."""

    def __init__(self, choice: EncodingChoice, sizes: Sequence[int]) -> None:
        """Make the encoding for tensors of these sizes, in the order of the flat vector.

        Raises:
            SpecError: there is no such class.
            TestbedError: what it says of itself is wrong.
        """
        assert choice.own is not None
        self.choice = choice
        self._name, self._total = choice.own, sum(sizes)
        own: Any = find(choice.own, {}, ENTRY_POINTS)(tuple(sizes), **choice.options)
        self._own = cast("Encoding", own)
        self.lossy = bool(getattr(own, "lossy", True))
        self.longest = own.longest()
        if type(self.longest) is not int or self.longest < 0:
            raise TestbedError(
                f"encoding {self._name}: longest() returned {self.longest!r}, and must return the most "
                "bytes that a body can have, an int"
            )

    def encode(self, update: Update) -> tuple[int, Sequence[bytes | memoryview]]:
        return OWN, [self._body(update)]

    def measure(self, update: Update) -> int:
        return len(self._body(update))

    def decode(self, encoding: int, body: memoryview) -> Update:
        if encoding != OWN:
            raise WireError(
                f"an update in encoding {encoding}; this run's encoding is {self._name}"
            )
        try:
            return checked(self._own.decode(body), self._total, self._own)
        except Exception as error:  # of a body from the network anything may come
            raise WireError(
                f"encoding {self._name} does not read a body of {len(body)} bytes: {said(error)}"
            ) from error

    def rounded(self, update: Update) -> Update:
        return self.decode(OWN, memoryview(self._body(update))) if self.lossy else update

    def _body(self, update: Update) -> bytes:
        try:
            body = self._own.encode(update)
        except Exception as error:
            kind = "sparse" if isinstance(update, SparseUpdate) else "dense"
            where = f" ({place})" if (place := place_of(error)) else ""
            raise EncodeError(
                f"encoding {self._name} refuses a {kind} update{where}: {said(error)}"
            ) from error
        if not isinstance(body, bytes) or len(body) > self.longest:
            what = f"{len(body):,} bytes" if isinstance(body, bytes) else type(body).__name__
            raise TestbedError(
                f"encoding {self._name}: encode() returned {what}, and must return at most "
                f"{self.longest:,} bytes, as its longest() says"
            )
        return body


def codec_of(choice: EncodingChoice, sizes: Sequence[int]) -> UpdateCodec:
    """Return the codec of a run's choice, for a model whose tensors have these sizes.

    Raises:
        SpecError, TestbedError: as ``OwnCodec`` does.
    """
    return Codec(choice, sizes) if choice.own is None else OwnCodec(choice, sizes)
