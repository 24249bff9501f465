"""Notice a run that is slow because its servers are killed again and again after one checkpoint.

Under the virtual clock each kill takes the run back to the last checkpoint, and a kill that the run has
come back from does not strike once more: the run always gets on, to the next kill. But what is between
the checkpoint and the kill is done again each time, so that many kills take time that grows with the
square of their number.
"""

MANY = 50
"""The number of returns to one checkpoint that is reported."""


class Repetition:
    """The returns of one run to its checkpoints."""

    def __init__(self) -> None:
        self._version = -1
        self._times = 0

    def back_to(self, version: int) -> str | None:
        """Count a return to the checkpoint of a version; return a warning if it is due."""
        self._times = self._times + 1 if version == self._version else 1
        self._version = version
        if self._times != MANY:
            return None
        return (
            f"it is the {MANY}th return to the checkpoint of update {version:,}, and after each all "
            "that came since is done again: a smaller `checkpoints: {every: …}` makes this faster"
        )
