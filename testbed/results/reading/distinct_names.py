"""Short names that tell runs, or groups of runs, from each other.

A run is called by its label, and where several have that, by what they differ in: the experiment, the
seed, or a few keys of the experiment file, as in a sweep.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from testbed.flattened import flattened
from testbed.results.reading.recorded_run import RecordedRun
from testbed.untrusted_text import printable

_MOST_KEYS = 3
_LONGEST_VALUE = 40
_NO_DIFFERENCE = {"name", "seed"}
"""Keys that names have by themselves."""


def distinct_names(runs: Sequence[RecordedRun]) -> tuple[str, ...]:
    """Return a short name for each run."""
    return names_of_groups([[run] for run in runs])


def names_of_groups(groups: Sequence[Sequence[RecordedRun]]) -> tuple[str, ...]:
    """Return a short name for each group of runs, which differ only in their seeds.

    It is the first of the possible names that no other group has, or the id of the group's first run,
    which is unique.
    """
    candidates = [_names(group) for group in groups]
    if len({names[-1] for names in candidates}) < len(candidates):
        settings = _settings([group[0] for group in groups])
        candidates = [_names(group, words) for group, words in zip(groups, settings, strict=True)]
    times = [Counter(names) for names in zip(*candidates, strict=True)]
    return tuple(
        next(
            (name for name, count in zip(names, times, strict=True) if count[name] == 1),
            group[0].id,
        )
        for group, names in zip(groups, candidates, strict=True)
    )


def _names(runs: Sequence[RecordedRun], settings: str | None = None) -> tuple[str, ...]:
    """Return the possible names of a group, the shortest first."""
    label, experiment = runs[0].algorithm, runs[0].manifest.experiment
    seeds = ("seed " if len(runs) == 1 else "seeds ") + ", ".join(
        str(run.manifest.seed) for run in runs
    )
    plain = (
        label,
        f"{label}, {experiment}",
        f"{label}, {seeds}",
        f"{label}, {experiment}, {seeds}",
    )
    if settings is None:
        return plain
    named = f"{label}, {settings}" if settings else label
    return (
        *plain,
        named,
        f"{named}, {seeds}",
        f"{named}, {experiment}",
        f"{named}, {experiment}, {seeds}",
    )


def _settings(runs: Sequence[RecordedRun]) -> list[str]:
    """Return the keys with which each run differs from others of its experiment and label.

    The text is empty if there are none, or more than a name has room for.
    """
    alike: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, run in enumerate(runs):
        alike[run.manifest.experiment, run.algorithm].append(i)
    words = [""] * len(runs)
    for numbers in alike.values():
        values = [_words(runs[i].spec) for i in numbers]
        keys = list(dict.fromkeys(key for one in values for key in one))
        differing = [
            key
            for key in keys
            if key not in _NO_DIFFERENCE and len({one.get(key, "null") for one in values}) > 1
        ]
        if len(differing) > _MOST_KEYS:
            continue
        short = Counter(_last(key) for key in differing)
        for i, one in zip(numbers, values, strict=True):
            words[i] = ", ".join(
                f"{_last(key) if short[_last(key)] == 1 else key} {one.get(key, 'null')}"
                for key in differing
            )
    return words


def _words(spec: Any) -> dict[str, str]:
    """Return the values of a spec by their keys, as text that a name has room for."""
    found = {}
    for key, value in flattened(spec):
        text = value if isinstance(value, str) else json.dumps(value)
        short = f"{text[:_LONGEST_VALUE]}…" if len(text) > _LONGEST_VALUE else text
        found[printable(key)] = printable(short)
    return found


def _last(key: str) -> str:
    return key.rpartition(".")[2]
