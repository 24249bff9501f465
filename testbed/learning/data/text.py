"""A plain text as a dataset of a language model: rows of tokens, each followed by the next token.

A row's targets are its own tokens, one further: row i of n positions has the tokens from i · n on, and
as targets those from i · n + 1 on. Rows do not overlap; what is left of the text makes no row.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from testbed.learning.data.raw import Raw


def load(path: Path, tokens: str = "bytes", context: int = 64, test: float = 0.1) -> Raw:
    """Read a text.

    Args:
        path: a file; with characters as tokens it is UTF-8.
        tokens: bytes: 256 tokens; characters: those that occur, in the order of their code points.
        context: positions of a row.
        test: the share of the rows, the last ones, that are for evaluations.

    Raises:
        ValueError: the text is too short, or not UTF-8.
    """
    if tokens == "bytes":
        found, classes = np.frombuffer(path.read_bytes(), np.uint8).astype(np.int64), 256
    else:
        # UTF-32 has one number for each character.
        points = np.frombuffer(path.read_bytes().decode().encode("utf-32-le"), np.uint32)
        known, numbers = np.unique(points, return_inverse=True)
        found, classes = numbers.astype(np.int64), len(known)
    rows = max(len(found) - 1, 0) // context
    tested = max(round(test * rows), 1)
    if tested >= rows:
        raise ValueError(f"{path} has {len(found)} tokens, too few for rows of {context}")

    def cut(start: int) -> npt.NDArray[np.int64]:
        return np.ascontiguousarray(found[start : start + rows * context].reshape(rows, context))

    inputs, targets = cut(0), cut(1)
    train = slice(0, rows - tested), slice(rows - tested, rows)
    return Raw(inputs[train[0]], targets[train[0]], inputs[train[1]], targets[train[1]], classes)
