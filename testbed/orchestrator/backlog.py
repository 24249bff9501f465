"""Warnings that evaluations pile up, long before the run's end has to wait for them."""

FIRST = 50
"""Waiting evaluations at which the first warning is due; the next ones follow at each doubling."""


class Backlog:
    """Decides when to warn that evaluations of one run wait for the evaluator."""

    def __init__(self) -> None:
        self._next = FIRST

    def warning(self, waiting: int) -> str | None:
        """Return the text of a warning if ``waiting`` has reached the next threshold, else None."""
        if waiting < self._next:
            return None
        while self._next <= waiting:
            self._next *= 2
        return (
            f"{waiting:,} evaluations wait: it cannot follow, and the run ends when it has made them; "
            "a greater evaluation.every or fewer evaluation.images give it less to do"
        )
