"""Evaluations that wait for the evaluator: a run says so before its end takes long for them."""

FIRST = 50
"""Evaluations that wait when it is said for the first time; again whenever they have doubled."""


class Backlog:
    """The evaluations of one run that were asked for and not told yet."""

    def __init__(self) -> None:
        self._next = FIRST

    def warning(self, waiting: int) -> str | None:
        """Return the text of a warning if so many wait for the first time."""
        if waiting < self._next:
            return None
        while self._next <= waiting:
            self._next *= 2
        return (
            f"{waiting:,} evaluations wait: it cannot follow, and the run ends when it has made them; "
            "a greater evaluation.every or fewer evaluation.images give it less to do"
        )
