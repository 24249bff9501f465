"""Messages on the wire: ``frames.Receiver`` and ``Codec.decode``, which may raise ``WireError``.

A mutant's first byte chooses the encoding of the run.
"""

from collections.abc import Sequence

import numpy as np

from testbed.encoding_choice import EncodingChoice
from testbed.updates import DenseUpdate, SparseUpdate, Update
from testbed.wire import WireError
from testbed.wire.encodings import Codec
from testbed.wire.frames import HEADER, Kind, Receiver, header

_SIZES = (40, 7, 3)
_TOTAL = sum(_SIZES)
_CODECS = [
    Codec(EncodingChoice.model_validate({"indices": indices, "values": values} | more), _SIZES)
    for indices in ("auto", "uint32", "gaps", "rice", "elias-fano", "bitmap", "gap-bytes")
    for values in ("float32", "float16", "int8")
    for more in ({}, {"compression": "zstd"})
]
TOKENS = (
    *(b"TB\1", *(bytes([kind]) for kind in Kind), b"\x28\xb5\x2f\xfd", bytes(8), b"\xff" * 8),
    *(number.to_bytes(8, "little") for number in (1, 32, 49, 50, 51, 200, 2**20, 2**63)),
)


def _updates() -> list[Update]:
    values = np.linspace(-1, 1, _TOTAL, dtype=np.float32)
    some = np.array([0, 3, 4, 17, 40, 49], np.uint32)
    return [
        DenseUpdate(values),
        SparseUpdate(some, values[some]),
        SparseUpdate(some[:0], values[:0]),
    ]


def corpus() -> Sequence[bytes]:
    """Return a push of each encoding and kind of update, between two other messages."""
    found: list[bytes] = []
    for place, codec in enumerate(_CODECS):
        for update in _updates():
            encoding, pieces = codec.encode(update)
            body = b"".join(map(bytes, pieces))
            push = header(Kind.PUSH, 5, encoding=encoding, loss=0.5, length=len(body)) + body
            found.append(bytes([place]) + header(Kind.PULL) + push + header(Kind.FINISHED, 6))
    return found


def check(data: bytes) -> bool:
    """Read the messages of a worker; return False if one is refused."""
    if not data:
        return True
    codec, stream = _CODECS[data[0] % len(_CODECS)], data[1:]
    accepts = {Kind.PUSH: codec.longest, Kind.PULL: 0, Kind.FINISHED: 0}
    receiver = Receiver(accepts, memoryview(bytearray(HEADER.size + 16)))
    try:
        while stream:
            place = receiver.buffer()
            count = min(len(place), len(stream))
            place[:count], stream = stream[:count], stream[count:]
            for frame in receiver.received(count):
                if frame.kind is Kind.PUSH:
                    _check(codec.decode(frame.encoding, frame.body))
    except WireError:
        return False
    return True


def _check(update: Update) -> None:
    assert update.values.dtype == np.float32
    if isinstance(update, DenseUpdate):
        assert update.values.shape == (_TOTAL,)
        return
    assert update.indices.dtype == np.uint32
    assert update.indices.shape == update.values.shape
    as_numbers = update.indices.astype(np.int64)
    assert (np.diff(as_numbers) > 0).all()
    assert (as_numbers < _TOTAL).all()
