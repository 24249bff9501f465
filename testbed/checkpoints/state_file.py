"""The file in which a device keeps states of its own, to go on from one when its process is made anew.

Each state has a number, and a place of its own: a process that is killed while it writes damages no
other one. The caller says with each state which of the earlier ones are to stay. Places begin at
multiples of ``PAGE`` bytes, where a new process looks for the states of earlier ones. It may find two
of one number, of which one was to stay no longer: they must be equal.
"""

import os
from collections.abc import Callable, Collection
from typing import Any

from testbed.checkpoints.records import Record, content_at, number_of, size_of, state_of_bytes
from testbed.checkpoints.stateful import State

PAGE = 4096


class StateFile:
    """The states in the file of one device."""

    def __init__(self, descriptor: int, types: Collection[type] = ()) -> None:
        """Find the states that earlier processes have left.

        Args:
            types: the classes whose objects a state may hold.
        """
        self._descriptor, self._types = descriptor, types
        self._places: dict[int, range] = {}
        """By number: the pages of a state."""
        page, end = 0, _pages(os.fstat(descriptor).st_size)
        while page < end:
            content = content_at(descriptor, page * PAGE)
            size = PAGE if content is None else size_of(content)
            if content is not None:
                self._places[number_of(content)] = range(page, page + _pages(size))
            page += _pages(size)

    @property
    def numbers(self) -> Collection[int]:
        """The numbers of the states in the file."""
        return self._places.keys()

    def read(self, number: int) -> Any:
        """Return a state.

        Raises:
            LookupError: there is none of this number.
            ValueError: it has been damaged, or is of another form.
        """
        content = content_at(self._descriptor, self._places[number].start * PAGE)
        if content is None or number_of(content) != number:
            raise ValueError(f"the state {number} is damaged")
        return state_of_bytes(content, self._types)

    def newest(self) -> Any:
        """Return the state with the highest number; None if there is none."""
        return self.read(max(self._places)) if self._places else None

    def add(self, state: State) -> None:
        """Write a state as the newest, over all but the newest one before.

        Raises:
            OSError, TypeError: as ``write`` raises them.
        """
        last = max(self._places, default=0)
        self.write(last + 1, state, lambda number: number == last)

    def write(self, number: int, state: State, needed: Callable[[int], bool]) -> None:
        """Write a state over those that are not needed.

        Args:
            needed: returns True of the number of an earlier state that is to stay.

        Raises:
            OSError: it could not be written; those that are needed are intact.
            TypeError: something in the state cannot be stored.
        """
        record = Record(number, state, self._types)
        kept = self._places.items()
        self._places = {one: at for one, at in kept if one != number and needed(one)}
        place = self._room(_pages(record.size))
        record.write(self._descriptor, place.start * PAGE)
        self._places[number] = place

    def _room(self, pages: int) -> range:
        """Return the first pages that no state has."""
        start = 0
        for taken in sorted(self._places.values(), key=lambda place: place.start):
            if taken.start - start >= pages:
                break
            start = taken.stop
        return range(start, start + pages)


def _pages(size: int) -> int:
    """Return the number of pages that so many bytes take."""
    return -(-size // PAGE)
