"""What of an object is its state: every attribute that is not said to be made anew.

So a class that is given another attribute has it in its checkpoints without a further word, and cannot
forget it; one that cannot be stored is found out by the first checkpoint, which names it.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np


class Stateful:
    """An object whose state can be taken, and given to another one made with the same arguments."""

    made_anew: ClassVar[frozenset[str]] = frozenset()
    """Attributes of this class that are no state: a new object has them as they should be."""

    def state(self) -> dict[str, Any]:
        """The state, by attributes; of an attribute that is itself stateful, its state.

        It shares the object's memory: it is to be stored before anything else is done to the object.
        """
        anew = _made_anew(type(self))
        return {
            name: value.state() if isinstance(value, Stateful) else value
            for name, value in vars(self).items()
            if name not in anew
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become as the object was that the state was taken of; takes the state's values over.

        Arrays are filled where they lie, as others may look at the same memory.

        Raises:
            ValueError: it is the state of something else.
        """
        # What is set up later than when the object is made may only be in one of the two.
        anew = _made_anew(type(self))
        if wrong := [name for name in state if name in anew]:
            raise ValueError(f"{type(self).__name__} makes {', '.join(wrong)} anew")
        for name, value in state.items():
            mine = vars(self).get(name)
            if isinstance(mine, Stateful):
                mine.restore(value)
            elif isinstance(mine, np.ndarray) and _alike(mine, value):
                np.copyto(mine, value)
            else:
                setattr(self, name, value)


def _made_anew(kind: type) -> frozenset[str]:
    return frozenset().union(*(vars(one).get("made_anew", ()) for one in kind.__mro__))


def _alike(one: np.ndarray[Any, Any], other: object) -> bool:
    return isinstance(other, np.ndarray) and one.shape == other.shape and one.dtype == other.dtype
