"""The evaluations that a run leaves out because the queue to the evaluator is full or unreadable."""

from collections.abc import Iterable, Iterator

MOST = 20
"""The most versions, or ranges of versions, that a text names."""


class LeftOutEvaluations:
    """The versions of one run whose evaluation was due and is left out."""

    def __init__(self, versions: Iterable[int] = ()) -> None:
        """Start with the evaluations left out in earlier sessions.

        Args:
            versions: those that the run had left out before, if it is resumed.
        """
        self._versions = set(versions)
        self._reason: str | None = None

    def __len__(self) -> int:
        return len(self._versions)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._versions))

    def add(self, version: int, reason: str) -> str | None:
        """Add a version; return the text of a warning if it is the first, else None."""
        first = self._reason is None
        self._versions.add(version)
        self._reason = reason
        if not first:
            return None
        return (
            f"the evaluator cannot follow: the evaluation of update {version:,} is left out, and "
            f"others may be ({reason})"
        )

    def go_back(self, version: int) -> None:
        """Forget later versions, which come again after a restore."""
        self._versions = {one for one in self._versions if one <= version}

    @property
    def told(self) -> str:
        """The number of evaluations and their versions, in words."""
        many = len(self._versions) > 1
        return (
            f"{len(self._versions):,} {'evaluations were' if many else 'evaluation was'} left out, "
            f"of update{'s' * many} {ranges(self._versions)}"
            + (f" ({self._reason})" if self._reason else "")
        )

    def summary(self) -> dict[str, object]:
        """Return the entry of ``summary.json``; empty if no evaluation was left out."""
        if not self._versions:
            return {}
        return {
            "evaluations_left_out": {
                "count": len(self._versions),
                "updates": ranges(self._versions),
                "reason": self._reason,
            }
        }


def ranges(numbers: Iterable[int], most: int = MOST) -> str:
    """Return numbers in few words: those at equal distances are named by the first and the last.

    Args:
        most: the most parts that the text names.

    >>> ranges([3, 4, 5, 9])
    '3 to 5, 9'
    >>> ranges([100, 200, 300])
    '100 to 300 in steps of 100'
    """
    parts: list[str] = []
    rest = sorted(numbers)
    while rest:
        if len(parts) == most:
            parts.append(f"and {len(rest):,} more")
            break
        step = rest[1] - rest[0] if len(rest) > 1 else 0
        count = 1
        while count < len(rest) and rest[count] - rest[count - 1] == step:
            count += 1
        if count <= 2:
            parts.append(str(rest[0]))
            count = 1
        else:
            steps = "" if step == 1 else f" in steps of {step}"
            parts.append(f"{rest[0]} to {rest[count - 1]}{steps}")
        rest = rest[count:]
    return ", ".join(parts)
