"""Labels: the names of the algorithms' runs in folders, tables and figures.

A label that the file gives is kept. The others consist of the algorithm's name and the options that
tell it from another entry of that name: the values of its numbers, of every other option that is not
at its default, and its own encoding and pulls. This module must not name an algorithm; the types of
the options say all that is needed.
"""

import re
from collections.abc import Sequence

from testbed.algorithms.interface import Options

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
"""The pattern of a folder's name; its first character keeps it from being hidden or an option."""

RESERVED = frozenset(
    {"figures", "report.html", "experiment.yaml", "results.csv", "results.parquet"}
)
"""The names of the files and folders next to the run directories."""


def check_name(name: str) -> str:
    """Return ``name`` if it can be a folder's name.

    Raises:
        ValueError: it cannot; the message says which names can.
    """
    if not re.fullmatch(NAME, name) or len(name) > 100:
        raise ValueError(
            f"'{name[:100]}' cannot be a folder's name: use up to 100 letters, digits, '-', '_' "
            "and '.', beginning with a letter or digit, e.g. quickstart"
        )
    return name


def check_experiment(name: str) -> str:
    """Return ``name`` if an experiment can have it.

    Raises:
        ValueError: it cannot be a folder's name, or it is what commands call the newest run.
    """
    if name == "latest":
        raise ValueError("'latest' is what commands call the newest run: use another name")
    return check_name(name)


def labels(algorithms: Sequence[Options]) -> tuple[str, ...]:
    """Return one label per algorithm, in their order, all different.

    A label that is made here and is already taken gets a number: ``asgd``, ``asgd-2``.
    """
    taken = {options.label for options in algorithms if options.label is not None}
    result: list[str] = []
    for options in algorithms:
        label = options.label
        if label is None:
            made = label = _describe(options)
            number = 1
            while label in taken or label in RESERVED:
                number += 1
                label = f"{made}-{number}"
            taken.add(label)
        result.append(label)
    return tuple(result)


def _describe(options: Options) -> str:
    parts = [options.name.rpartition(":")[2]]
    for key, field in type(options).model_fields.items():
        value = getattr(options, key)
        if key in ("name", "label", "encoding", "pulls") or value is None:
            continue
        if isinstance(value, bool):
            if value != field.default:
                parts.append(key if value else f"no-{key}")
        elif isinstance(value, int | float):
            number = repr(value).removesuffix(".0").replace("e+", "e")
            if not field.repr:  # seldom changed
                parts += [f"{key}-{number}"] * (value != field.default)
                continue
            # A number without a default is seldom given, so its key comes with it.
            parts.append(number if field.default is not None else f"{key}-{number}")
        elif value != field.get_default(call_default_factory=True, validated_data={}):
            # A nested model or a list has no short text: its key stands for it.
            parts.append(value if isinstance(value, str) else key)
    if options.encoding is not None:
        parts.append(options.encoding.name)
    if options.pulls is not None:
        parts.append(f"{options.pulls}-pulls")
    # Short enough that a number can follow.
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(parts))[:90]
