"""A plain text as a dataset of a language model: rows of tokens, each followed by the next token.

A row's targets are its own tokens, one further: row i of n positions has the tokens from i · n on, and
as targets those from i · n + 1 on. Rows do not overlap; what is left of the text makes no row.
"""

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.learning.data.raw import Raw

Numbers: TypeAlias = npt.NDArray[np.int64]

LINE_END = "<eos>"
"""The word at the end of each line, as models that are compared on WikiText have it."""


def load(path: Path, tokens: str = "bytes", context: int = 64, test: float | Path = 0.1) -> Raw:
    """Read a text.

    Args:
        path: a file; unless its bytes are the tokens it is UTF-8.
        tokens: bytes: 256 tokens; characters: those that occur, in the order of their code points;
            words: what blanks separate, by their first occurrence, and ``LINE_END``.
        context: positions of a row.
        test: the share of the rows, the last ones, that are for evaluations; or a second file.

    Raises:
        ValueError: a text is too short, or not UTF-8.
    """
    files = [path, test] if isinstance(test, Path) else [path]
    numbers, classes = _numbered(files, tokens)
    rows = [max(len(one) - 1, 0) // context for one in numbers]
    tested = rows[-1] if isinstance(test, Path) else max(round(test * rows[0]), 1)
    for file, of, count in zip(files, numbers, rows, strict=True):
        if count < 1 or (len(files) == 1 and tested >= count):
            raise ValueError(f"{file} has {len(of)} tokens, too few for rows of {context}")

    def cut(of: Numbers, start: int, count: int) -> Numbers:
        return np.ascontiguousarray(of[start : start + count * context].reshape(count, context))

    whole = [
        (cut(of, 0, count), cut(of, 1, count)) for of, count in zip(numbers, rows, strict=True)
    ]
    if len(files) == 1:
        inputs, targets = whole[0]
        whole = [(inputs[:-tested], targets[:-tested]), (inputs[-tested:], targets[-tested:])]
    return Raw(*whole[0], *whole[1], classes)


def _numbered(files: Sequence[Path], tokens: str) -> tuple[list[Numbers], int]:
    """Return the tokens of each file by their numbers, and how many tokens there are."""
    if tokens == "bytes":
        return [np.frombuffer(one.read_bytes(), np.uint8).astype(np.int64) for one in files], 256
    if tokens == "characters":
        # UTF-32 has one number for each character.
        points = [
            np.frombuffer(one.read_bytes().decode().encode("utf-32-le"), np.uint32) for one in files
        ]
        known = np.unique(np.concatenate(points))
        return [np.searchsorted(known, one).astype(np.int64) for one in points], len(known)
    words: dict[str, int] = {}
    return [_words(one, words) for one in files], len(words)


def _words(path: Path, known: dict[str, int]) -> Numbers:
    """Return the numbers of a file's words, and add those that are new to the known ones."""
    found = array("q")  # a list of the words themselves would take ten times the memory
    with path.open(encoding="utf-8") as file:
        for line in file:
            found.extend(known.setdefault(word, len(known)) for word in line.split())
            found.append(known.setdefault(LINE_END, len(known)))
    return np.frombuffer(found, np.int64)
