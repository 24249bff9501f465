"""What comes about a second time because the server went back to a checkpoint, and stands only once.

Under the virtual clock it is the same, and comes in the same order: it is enough to count.
"""

from collections import Counter
from collections.abc import Mapping

from testbed.channel import Message
from testbed.telemetry.records import UPDATE


class Deduplication:
    """Of one run: update rows, evaluations, suspicions and the records of faults."""

    def __init__(self, had: Mapping[str, int] | None = None) -> None:
        """Begin.

        Args:
            had: how often what has come about already, if the run goes on.
        """
        self._had: Counter[str] = Counter(had or {})
        self._again: Counter[str] = Counter()

    def back_to(self, counts: Mapping[str, int]) -> None:
        """What comes next is what there was behind these."""
        self._again = Counter({name: self._had[name] - count for name, count in counts.items()})

    def to_come_again(self, name: str) -> int:
        """How many of these are on record, and come about once more."""
        return self._again[name]

    def is_new(self, name: str) -> bool:
        """Whether the next one of these has not come about before."""
        if self._again[name] > 0:
            self._again[name] -= 1
            return False
        self._had[name] += 1
        return True

    def new(self, message: Message) -> Message | None:
        """What of a role's message is new; of faults all, as they are to be made real again."""
        match message.fields:
            case {"updates": count, "version": _}:
                known = min(self._again["updates"], count)
                self._again["updates"] -= known
                self._had["updates"] += count - known
                if known == count:
                    return None
                rest = message.raw[known * UPDATE.itemsize :]
                return Message(message.fields | {"updates": count - known}, rest)
            case {"checkpoint": _}:
                return message if self.is_new("evaluations") else None
            case {"suspected": _} | {"welcomed": _}:
                return message if self.is_new("suspicions") else None
        return message
