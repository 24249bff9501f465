"""The table of the learning rates that the knee rule gives."""

from dataclasses import dataclass

from reproduction.measures import Lines
from reproduction.papers.dbw import knee
from reproduction.papers.dbw.lines import KNEES
from reproduction.tables import markdown
from testbed.number_text import UNKNOWN


@dataclass(frozen=True, slots=True)
class Knees:
    """A row for each mini-batch, and a column for each k."""

    def markdown(self, lines: Lines) -> str:
        """Return the table."""
        found = knee.found(lines, KNEES)
        rows = [
            (f"B = {batch}", *(str(found.get(f"{batch}/{k}", UNKNOWN)) for k in knee.WAITED_FOR))
            for batch in knee.BATCHES
        ]
        return markdown(("η", *(f"k = {k}" for k in knee.WAITED_FOR)), rows)
