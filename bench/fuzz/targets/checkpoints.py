"""States in checkpoints: ``checkpoints.records.state_of_bytes``, which may raise ``ValueError``."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from testbed.checkpoints.records import state_as_bytes, state_of_bytes


@dataclass
class _Stored:
    """An object of the kind that a checkpoint may hold."""

    name: str = "worker-0"
    values: list[int] = field(default_factory=lambda: [1, 2])


_TYPES = (_Stored,)
TOKENS = (
    *(b'{"array": 0}', b'{"array": -1}', b'{"same": 0}', b'{"tuple": [1]}', b'{"set": [[]]}'),
    *(b'{"dict": [[1, 2]]}', b'{"dict": [1]}', b'{"object": ["_Stored", {}]}', b'"|O"', b'"<f4"'),
    *(b'["<f8", [9]]', b"[", b"{", b"]", b"}", b"null", b"1e999", b"-1", b"9" * 30, b'"__class__"'),
    *(b'{"scalar": ["<i8", 3]}', b'{"scalar": ["|V8", "x"]}', b'"arrays": []', b'"state": 0'),
)


def corpus() -> Sequence[bytes]:
    """Return states with all kinds of values, and one that is nothing."""
    one = _Stored()
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    state = {
        "version": 3,
        "weights": weights,
        "again": weights,
        "workers": [one, one],
        "waiting": deque([1, (2, "x")]),
        "seen": {1, 2},
        "by number": {1: np.int64(4), 2: np.float32(0.5)},
        "empty": np.zeros((0, 4), np.int64),
    }
    return [state_as_bytes(one, _TYPES) for one in (state, {"version": 1}, {})]


def check(data: bytes) -> bool:
    """Read a state; return False if it is refused."""
    try:
        state_of_bytes(data, _TYPES)
    except ValueError:
        return False
    return True
