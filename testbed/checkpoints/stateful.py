"""The state of an object: every attribute that its class does not list in ``made_anew``.

An attribute that is added to a class is in its checkpoints without further code, and cannot be
forgotten. If it cannot be stored, the first checkpoint fails and names it.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np


class Stateful:
    """An object whose state can be taken, and given to another one made with the same arguments."""

    made_anew: ClassVar[frozenset[str]] = frozenset()
    """Attributes of this class that are not state: a new object has them as they should be."""

    def state(self) -> dict[str, Any]:
        """Return the state, by attribute; an attribute that is itself stateful appears as its state.

        The state shares the object's memory: store it before the object changes.
        """
        anew = _made_anew(type(self))
        return {
            name: value.state() if isinstance(value, Stateful) else value
            for name, value in vars(self).items()
            if name not in anew
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become as the object was that the state was taken from; the state's values are taken over.

        Arrays are filled in place, as other objects may use the same memory.

        Raises:
            ValueError: the state has an attribute that this class makes anew.
        """
        # Only this is checked: an attribute set after construction may be in only one of the two.
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
